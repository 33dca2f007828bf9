"""`worker`, and who judges: this machine or the workers of a folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Cli = Callable[..., Any]
PROBLEM = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def test_pack_writes_a_program(cli: Cli, tmp_path: Path) -> None:
    result = cli("worker", "pack", tmp_path / "worker.pyz", "--json")
    assert result.code == 0
    assert result.json["bytes"] == (tmp_path / "worker.pyz").stat().st_size
    assert os.access(tmp_path / "worker.pyz", os.X_OK)


def test_a_worker_without_jobs_ends(cli: Cli, tmp_path: Path) -> None:
    result = cli("worker", "--spool", tmp_path / "jobs", "--once", "--json")
    assert (result.code, result.json["jobs"]) == (0, 0)
    assert sorted(p.name for p in (tmp_path / "jobs").iterdir() if p.is_dir()) == [
        *("claimed", "jobs", "results", "workers"),
    ]


def test_a_worker_needs_a_folder_and_eval_a_known_executor(cli: Cli, tmp_path: Path) -> None:
    assert cli("worker", "--json").code == 2
    (tmp_path / "p.py").write_text(PROBLEM)
    result = cli("eval", tmp_path / "p.py", tmp_path / "p.py", "--executor", "cloud", "--json")
    assert result.code == 2
    assert "spool:DIR" in result.json["error"]["hint"]
