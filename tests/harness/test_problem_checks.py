"""Findings about problems: kept, and shown beside speedups."""

from __future__ import annotations

from pathlib import Path

from harness import EvaluationRequest, LocalExecutor
from harness.problem_checks import PREFIX, UNCHECKED, CheckedExecutor, stored, weaknesses, with_findings

WEAK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x - 100)
def get_inputs():
    return [torch.rand(64, 64)]
def get_init_inputs():
    return []
"""
SOUND = WEAK.replace("x - 100", "x - 0.5").replace("torch.rand", "torch.randn")
CANDIDATE = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {}\n"


def test_small_problem_is_checked_with_its_first_speedup(executor: LocalExecutor, tmp_path: Path) -> None:
    judge = CheckedExecutor(executor, tmp_path)
    request = EvaluationRequest(WEAK, CANDIDATE.format("torch.relu(x - 100)"), timing_budget_s=0.2)
    first = judge.evaluate(request)
    assert first.speedup is not None, first.reason
    assert f"{PREFIX}zeros-pass" in [flag["rule"] for flag in first.flags]
    assert any("zeros" in detail for detail in weaknesses(first.flags))
    assert stored(tmp_path, WEAK)
    assert stored(tmp_path, WEAK + "\n") is None, "another text is another problem"


def test_findings_come_from_the_store(executor: LocalExecutor, tmp_path: Path) -> None:
    judge = CheckedExecutor(executor, tmp_path)
    assert judge.check(SOUND) == []
    assert stored(tmp_path, SOUND) == []
    request = EvaluationRequest(SOUND, CANDIDATE.format("torch.relu(x - 0.5)"), timing_budget_s=0.2)
    evaluation = judge.evaluate(request)
    assert not [flag for flag in evaluation.flags if flag["rule"].startswith(PREFIX)]
    assert weaknesses(evaluation.flags) == []


def test_no_speedup_no_check(executor: LocalExecutor, tmp_path: Path) -> None:
    judge = CheckedExecutor(executor, tmp_path)
    judge.evaluate(EvaluationRequest(WEAK, CANDIDATE.format("x"), timing_budget_s=0.2))
    assert stored(tmp_path, WEAK) is None


def test_flags_are_not_repeated() -> None:
    flag = {"rule": "constant-output", "severity": "warning", "detail": "d"}
    other = {"rule": "busy-machine", "severity": "warning", "detail": "busy"}
    merged = with_findings([flag, other], [flag])
    assert [f["rule"] for f in merged] == ["busy-machine", f"{PREFIX}constant-output"]
    assert weaknesses(merged) == ["d"]
    assert [f["rule"] for f in with_findings([other], None)] == ["busy-machine", UNCHECKED]


def test_unreadable_store_is_a_problem_not_checked(tmp_path: Path, executor: LocalExecutor) -> None:
    CheckedExecutor(executor, tmp_path).check(SOUND)
    (kept,) = (tmp_path / "problem-checks").iterdir()
    kept.write_text("{")
    assert stored(tmp_path, SOUND) is None
