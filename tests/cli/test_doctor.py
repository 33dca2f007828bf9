"""`kernelevolve doctor` looks at the real machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from cli.checks import Check, all_checks, origin
from cli.session import AppState

EXPECTED = {"python", "packages", "torch", "C++ compiler", "embedding", "home", "database", "gpu"}


def test_this_machine_can_do_the_main_job(cli: Any) -> None:
    result = cli("doctor", "--json")
    document = result.json
    assert result.code == 0, document
    assert document["ok"] is True
    assert {c["name"] for c in document["checks"]} >= EXPECTED
    assert all(set(c) == {"name", "status", "detail", "hint"} for c in document["checks"])


def test_missing_compiler_fails_with_a_hint(cli: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    monkeypatch.setenv("PATH", "/nowhere")
    result = cli("doctor")
    assert result.code == 3
    (line,) = [line for line in result.out.splitlines() if line.startswith("fail") and "compiler" in line]
    assert "compiler" in line


def test_home_without_permission_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    checks = {c.name: c for c in all_checks(AppState(home=tmp_path / "file" / "home", verbose=False))}
    assert checks["home"].status == "fail"
    assert "KERNELEVOLVE_HOME" in checks["home"].hint


def test_shadowed_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "__init__.py").write_text("")
    code = "from cli.checks import _packages; c = next(iter(_packages())); print(c.status, c.detail)"
    result = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd="/",
        check=True,
    )
    assert result.stdout.startswith("fail shadowed: agent")
    assert str(tmp_path) in result.stdout


def test_a_broken_check_is_a_finding(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("cli.checks._gpu", lambda: 1 / 0)
    broken = [c for c in all_checks(AppState(home=home, verbose=False)) if c.name == "ZeroDivisionError"]
    assert [type(c) for c in broken] == [Check]
    assert broken[0].status == "fail"


def test_origin_of_a_package_that_does_not_exist() -> None:
    assert origin("no_such_package_anywhere") is None
