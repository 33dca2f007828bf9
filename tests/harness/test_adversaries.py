"""More candidates than those of single rules: for `samples/`, the harness as a whole must tell cheats from
honest ones. All are candidates for the problem in conftest (layer norm, then ReLU).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Evaluation, EvaluationRequest, LocalExecutor

Evaluate = Callable[..., Evaluation]

SAMPLES = Path(__file__).parent / "samples"
ADVERSARIES = sorted((SAMPLES / "adversaries").glob("*.py"))
HONEST = sorted((SAMPLES / "honest").glob("*.py"))
REFUSED = ("rejected", "incorrect", "runtime_error", "timeout")


@pytest.mark.full
@pytest.mark.parametrize("path", ADVERSARIES, ids=lambda path: path.stem)
def test_refused(evaluate: Evaluate, norm_problem: str, path: Path) -> None:
    result = evaluate(norm_problem, path.read_text(), timing_budget_s=0.5)
    assert result.status in REFUSED, (result.status, result.reason)
    assert result.speedup is None


@pytest.mark.full
@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_accepted(evaluate: Evaluate, norm_problem: str, path: Path) -> None:
    limits = {"build_limit_s": 300.0, "run_limit_s": 60.0}
    result = evaluate(norm_problem, path.read_text(), timing_budget_s=0.5, **limits)
    assert result.status == "correct", (result.status, result.reason, result.log)
    assert not [f for f in result.flags if f["severity"] == "reject"]


@pytest.mark.full
def test_what_torchinductor_generates(executor: LocalExecutor, norm_problem: str) -> None:
    source = executor.compiler_source(norm_problem)
    request = EvaluationRequest(norm_problem, source, timing_budget_s=0.5, build_limit_s=300.0)
    result = executor.evaluate(request)
    assert result.status == "correct", (result.reason, result.log)
