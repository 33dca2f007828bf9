"""Timing: an A/A comparison finds nothing, a real difference is found, statistics are right."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from harness import Evaluation
from harness.worker import machine
from harness.worker.floor import check_floor
from harness.worker.machine import _own_s, measuring_alone
from harness.worker.stats import quantile, ratio_interval, summary
from harness.worker.timing import RESOLUTION_S, Measurement, charge_late_work
from harness.worker.trial import Verdict

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
    assert leaves_it.status == "correct"
    assert "input-not-updated" in [f["rule"] for f in leaves_it.flags]
    other = evaluate(IN_PLACE, own(IN_PLACE).replace("x.add_(1)", "x.add_(2).sub_(1), x.mul_(2)"))
    assert other.status == "incorrect"


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


# -- what cannot be --------------------------------------------------------------------------------------

SLEEPY = with_forward("import time; time.sleep(0.02); return torch.sqrt(x)", "[torch.rand(64, 64)]")
EARLY = """
import sys
child = sys.modules["harness.worker.child"]
usual = child.Server.call
def call(self, message):
    send = self.channel.send
    send({"done": message["nonce"]})
    self.channel.send = lambda answer: None if set(answer) == {"done"} else send(answer)
    try:
        usual(self, message)
    finally:
        self.channel.send = send
child.Server.call = call
"""


def test_a_child_that_says_done_too_early_gains_nothing(evaluate: Evaluate) -> None:
    """The judge's clock goes on until the result is there. Sleep takes as long on a busy machine."""
    result = evaluate(SLEEPY, EARLY + own(SLEEPY), timing_budget_s=0.5)
    if result.status == "correct":
        assert "late-work" in [f["rule"] for f in result.flags]
        assert result.speedup is not None
        assert result.speedup < 2.0
    else:
        assert result.status == "rejected"


def test_late_work_is_part_of_the_call() -> None:
    blocks = {"eager": [[0.010] * 4] * 6, "candidate": [[0.001] * 4] * 6}
    usual = {"eager": [[0.002] * 4] * 6, "candidate": [[0.0021] * 4] * 6}
    honest = Measurement({name: [list(b) for b in one] for name, one in blocks.items()})
    charge_late_work(honest, usual)
    assert (honest.late_s, honest.blocks) == (0.0, blocks)
    late = Measurement({name: [list(b) for b in one] for name, one in blocks.items()})
    charge_late_work(late, {**usual, "candidate": [[0.011] * 4] * 6})
    assert late.late_s == pytest.approx(0.009)
    assert late.blocks["candidate"][0] == pytest.approx([0.010] * 4)
    assert late.blocks["eager"] == blocks["eager"]


class FakeTrial:
    """What the floor asks of a trial whose reference is a plain function."""

    device, takes_edits, mutates, typical_s = "cpu", True, False, {"eager": 1e-3}

    def __init__(self, forward: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
        self.forward, self.rng, self.flags = forward, random.Random(0), []  # type: ignore[var-annotated]
        self.reference = SimpleNamespace(flats=[[x]], outputs=[], alias="")
        self.call_reference(0, 0)

    def check(self, candidate_ms: float) -> str:
        times = SimpleNamespace(candidate_ms={"median": candidate_ms}, baselines={"eager_ms": 500.0})
        self.result = times
        try:
            check_floor(self)  # type: ignore[arg-type]
        except Verdict as verdict:
            return f"{verdict.status}: {self.flags.pop()}: {verdict.reason}"
        return ""

    def flag(self, rule: str, _severity: str, _detail: str) -> None:
        self.flags.append(rule)

    def seed(self) -> int:
        return 0

    def contents(self, slot: int) -> list[torch.Tensor]:
        return [t.clone() for t in self.reference.flats[slot]]

    def call_reference(self, slot: int, seed: int) -> None:
        self.reference.outputs = [self.forward(self.reference.flats[slot][0]).contiguous()]

    def reference_output(self, slot: int, seed: int) -> list[torch.Tensor]:
        self.call_reference(slot, seed)
        return [t.clone() for t in self.reference.outputs]


def test_a_time_that_memory_does_not_allow_is_impossible() -> None:
    """To copy 8 MB in two microseconds; but not where the result hardly depends on the input."""
    x = torch.rand(1 << 21)
    doubled = FakeTrial(lambda x: x * 2, x)
    assert doubled.check(0.002).startswith("rejected: impossible-time")
    assert "MB, which take" in doubled.check(0.002)
    assert not doubled.check(300.0)
    first = FakeTrial(lambda x: x[:64] * 2, x)
    spread = FakeTrial(lambda x: (x[:1] * 2).expand(x.shape), x)
    zeros = FakeTrial(lambda x: torch.where(x > 1e9, x, 0), x)
    assert not any(trial.check(0.002) for trial in (first, spread, zeros))
    assert "does nothing" in first.check(1e3 * RESOLUTION_S)


def test_a_disturbed_measurement_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = iter([0.5, 0.3, 0.4, 0.0])
    monkeypatch.setattr(machine.CpuAccount, "foreign_share", lambda _: next(shares))
    runs = iter(range(10))
    assert machine.undisturbed(lambda: next(runs), 60.0, 3) == (1, 0.3)  # the least disturbed of three
    assert machine.undisturbed(lambda: next(runs), 60.0, 3) == (3, 0.0)  # quiet: once is enough
    shares = iter([0.5, 0.3])
    assert machine.undisturbed(lambda: next(runs), 0.0, 3) == (4, 0.5)  # no time left


def test_a_win_needs_an_interval_above_one(evaluate: Evaluate) -> None:
    quick = SLEEPY.replace("import time; time.sleep(0.02);", "")
    faster = evaluate(SLEEPY, own(quick), timing_budget_s=0.3)
    assert faster.win is True
    slower = evaluate(quick, own(SLEEPY), timing_budget_s=0.3)
    assert slower.win is False
    same = evaluate(SLEEPY, own(SLEEPY), timing_budget_s=0.3)
    assert same.speedup_ci is not None
    low, high = same.speedup_ci
    assert same.win is (low > 1)
    assert ("not distinguishable from eager" in same.reason) is (low <= 1 <= high)
    assert evaluate(quick, own(quick)).win is None


def test_fewer_operations_than_the_reference_has_are_flagged(evaluate: Evaluate) -> None:
    problem = with_forward(
        "return (torch.diag(x[0]) @ x.new_ones(768, 768)) @ x.new_ones(768, 2)", "[torch.rand(4, 768)]"
    )
    cheaper = own(problem).replace(
        "(torch.diag(x[0]) @ x.new_ones(768, 768)) @ x.new_ones(768, 2)",
        "(768 * x[0])[:, None].expand(768, 2).contiguous()",
    )
    result = evaluate(problem, cheaper, timing_budget_s=0.5)
    assert result.status == "correct", result.reason
    assert "under-flop-floor" in {f["rule"] for f in result.flags}
