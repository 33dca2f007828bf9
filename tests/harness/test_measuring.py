"""Timing: an A/A comparison finds nothing, a real difference is found, statistics are right."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from harness import Evaluation
from harness.worker.machine import _own_s, measuring_alone
from harness.worker.stats import quantile, ratio_interval, summary

Evaluate = Callable[..., Evaluation]

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
def get_inputs():
    return [torch.rand(512, 2048)]
def get_init_inputs():
    return []
"""
SAME = PROBLEM.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")


def own(source: str) -> str:
    return source.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")


def with_forward(body: str, inputs: str) -> str:
    source = PROBLEM.replace("return torch.softmax(x, -1)", body)
    return source.replace("[torch.rand(512, 2048)]", inputs)


SPD = "[(lambda a: a @ a.t() + 48 * torch.eye(48))(torch.rand(48, 48))]"


def test_reference_against_itself_is_about_one(evaluate: Evaluate) -> None:
    result = evaluate(PROBLEM, SAME, timing_budget_s=1.5)
    assert result.status == "correct", result.reason
    assert result.timed
    assert result.speedup is not None
    assert result.speedup_ci is not None
    assert result.speedup_ci[0] <= result.speedup <= result.speedup_ci[1]
    assert 0.5 < result.speedup < 2.0  # generous: tests share the machine
    assert result.candidate_ms is not None
    assert result.candidate_ms["p05"] <= result.candidate_ms["median"] <= result.candidate_ms["p95"]
    assert result.correctness is not None
    assert result.correctness["timed_checks"] >= result.candidate_ms["n"]
    assert result.speedups["eager"]["speedup"] == result.speedup


def test_a_slower_candidate_is_seen_to_be_slower(evaluate: Evaluate) -> None:
    wasteful = SAME.replace(
        "return torch.softmax(x, -1)",
        "[torch.softmax(x, -1) for _ in range(5)]\n        return torch.softmax(x, -1)",
    )
    result = evaluate(PROBLEM, wasteful, timing_budget_s=1.5)
    assert result.speedup_ci is not None
    assert result.speedup_ci[1] < 0.7


@pytest.mark.parametrize(
    "problem",
    [
        with_forward("return torch.linalg.cholesky(x + 0 * x.clamp(min=1))", SPD),
        with_forward("assert torch.equal(x, x.t())\n        return torch.linalg.cholesky(x)", SPD),
        with_forward("return torch.sqrt(x[1:] - x[:-1])", "[torch.rand(900).cumsum(0)]"),
    ],
    ids=["cholesky", "symmetric", "sorted"],
)
def test_reference_that_takes_no_exchanged_elements(evaluate: Evaluate, problem: str) -> None:
    """Its domain holds in the timed calls, too, also where one exchange went well by chance."""
    result = evaluate(problem, own(problem), timing_budget_s=0.3)
    assert result.status == "correct", result.reason
    assert result.timed
    assert result.correctness is not None
    assert result.correctness["timed_checks"] > 5
    if "assert" in problem:
        assert "edits-skipped" in [f["rule"] for f in result.flags]


IN_PLACE = with_forward("return x.add_(1)", "[torch.rand(300)]")


def test_reference_that_changes_its_inputs(evaluate: Evaluate) -> None:
    result = evaluate(IN_PLACE, own(IN_PLACE), timing_budget_s=0.3)
    assert result.status == "correct", result.reason
    assert "mutates-inputs" in [f["rule"] for f in result.flags]
    assert "random-output" not in [f["rule"] for f in result.flags]
    leaves_it = evaluate(IN_PLACE, own(IN_PLACE).replace("x.add_(1)", "x + 1"))
    assert leaves_it.status == "incorrect"
    assert "input 0 after the call" in leaves_it.reason
    assert "which the reference does not" not in leaves_it.reason


@pytest.mark.full
def test_reference_that_changes_its_inputs_against_compile(evaluate: Evaluate) -> None:
    result = evaluate(IN_PLACE, own(IN_PLACE), timing_budget_s=0.3, baseline="compile")
    assert result.status == "correct", result.reason


@pytest.mark.full
def test_compile_baseline(evaluate: Evaluate) -> None:
    result = evaluate(PROBLEM, SAME, timing_budget_s=1.5, baseline="compile")
    assert result.status == "correct", result.reason
    assert result.baselines["compile_ms"] is not None
    assert result.speedup == result.speedups["compile"]["speedup"]
    assert set(result.speedups) == {"eager", "compile"}


def test_interval_covers_the_truth_and_excludes_a_wrong_one() -> None:
    rng = random.Random(3)
    slow = [[2 + rng.gauss(0, 0.1) for _ in range(5)] for _ in range(12)]
    fast = [[1 + rng.gauss(0, 0.1) for _ in range(5)] for _ in range(12)]
    ratio, low, high = ratio_interval(slow, fast)
    assert low < 2 < high
    assert low > 1.8
    assert high < 2.2
    assert low <= ratio <= high


def test_what_slows_a_pair_of_blocks_cancels() -> None:
    drift = [1, 1, 1, 5, 5, 5, 1, 1, 1, 5, 5, 5]
    a = [[d * 1.0] * 4 for d in drift]
    _, low, high = ratio_interval(a, a)
    assert (low, high) == (1.0, 1.0)


def test_summary_and_quantiles() -> None:
    found = summary([0.001 * i for i in range(1, 102)])
    assert found["median"] == pytest.approx(51)
    assert found["p05"] == pytest.approx(6)
    assert found["n"] == 101
    assert quantile([1.0], 0.3) == 1.0


def test_only_one_measurement_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("harness.worker.machine.LOCK_WAIT_S", 0.05)
    with measuring_alone("cpu") as first, measuring_alone("cpu") as second:
        assert (first, second) == (True, False)
    with measuring_alone("cpu") as third:
        assert third


def test_own_work_is_counted_as_own() -> None:
    start, before = time.process_time(), _own_s()
    while time.process_time() - start < 0.3:
        pass
    assert 0.2 <= _own_s() - before <= 2.0
