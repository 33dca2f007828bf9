"""Targets, the machine's report and its measured ceilings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness import EvaluationRequest, LocalExecutor
from harness.calibrate import cpu_ceilings, store, stored_ceilings
from harness.doctor import checks
from harness.errors import TargetUnavailable, TargetUnknown
from harness.target import get_target, list_targets
from harness.worker import environment
from harness.worker.jail.sandbox import FEATURES


def test_targets() -> None:
    cpu = get_target("cpu")
    assert cpu.available() == (True, "")
    assert "cpp" in cpu.languages
    assert cpu.facts["cores"] >= 1
    assert "nvidia:sm_90" in [t.name for t in list_targets()]
    available, reason = get_target("nvidia:sm_90").available()
    assert available or reason
    with pytest.raises(TargetUnknown) as caught:
        get_target("abacus")
    assert "cpu" in caught.value.hint


def test_target_without_its_device(
    executor: LocalExecutor,
    norm_problem: str,
    norm_candidate: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if get_target("nvidia:sm_90").available()[0]:
        pytest.skip("the device is here")
    with pytest.raises(TargetUnavailable):
        executor.require("nvidia:sm_90")
    elsewhere = replace(get_target("nvidia:sm_90"), compile_probe=lambda: (False, "no compiler"))
    monkeypatch.setattr("harness.executor.get_target", lambda _: elsewhere)
    with pytest.raises(TargetUnavailable):  # with a compiler, it is compiled: test_crosscompile.py
        executor.evaluate(EvaluationRequest(norm_problem, norm_candidate, target="nvidia:sm_90"))


def test_checks_name_every_part_of_the_jail(tmp_path: Path) -> None:
    found = {c.name: c for c in checks(tmp_path)}
    assert {f"sandbox: {feature}" for feature in FEATURES} <= set(found)
    assert found["torch"].ok
    assert all(bool(c.hint) != c.ok for c in found.values())


def test_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    found = {c.name: c for c in checks()}
    assert not found["C++ compiler"].ok
    assert "install g++" in found["C++ compiler"].hint


def test_ceilings_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.calibrate.COPY_BYTES", 1 << 22)
    monkeypatch.setattr("harness.calibrate.MATRIX_SIZE", 128)
    assert stored_ceilings(tmp_path) is None
    first = cpu_ceilings(tmp_path)
    assert first["bandwidth_gb_s"] > 0
    assert first["fp32_gflop_s"] > 0
    assert cpu_ceilings(tmp_path) == first
    store(tmp_path, "another device", {"bandwidth_gb_s": 4000.0})
    assert stored_ceilings(tmp_path) == first
    monkeypatch.setattr(environment, "usable_cpus", lambda: 999)
    assert stored_ceilings(tmp_path) is None
    (tmp_path / "ceilings.json").write_text("{")
    assert stored_ceilings(tmp_path) is None
