"""Where sums cancel, eager is off, too: double precision tells right from wrong, in timed calls as well."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness import Evaluation
from harness.worker.compare import Comparison, Tolerance
from harness.worker.exact import TimedCheck, exact_result
from harness.worker.side import Mismatch

Evaluate = Callable[..., Evaluation]

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return (x + {offset}).sum(1) - x.shape[1] * {offset}
def get_inputs():
    return [torch.randn(256, 1000).{dtype}()]
def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
class ModelNew(torch.nn.Module):
    calls = 0
    def forward(self, x):
        self.calls += 1
        {forward}
"""
OTHER_ORDER = "return (x.flip(1) + {offset}).view(256, 8, 125).sum(2).sum(1) - x.shape[1] * {offset}"
# As far off as it may be in the rounds, on the other side of the truth than eager; further in timed calls.
FURTHER = """d = x.double()
        exact = (d + {offset}).sum(1) - x.shape[1] * {offset}
        eager = ((x + {offset}).sum(1) - x.shape[1] * {offset}).double()
        return (exact - ({later} if self.calls > 9 else 3) * (eager - exact)).to(x.dtype)"""


@pytest.mark.parametrize(("dtype", "offset"), [("float", 1e4), ("half", 16.0), ("bfloat16", 16.0)], ids=str)
def test_another_order_of_summation_stays_accepted(evaluate: Evaluate, dtype: str, offset: float) -> None:
    problem = PROBLEM.format(dtype=dtype, offset=offset)
    candidate = CANDIDATE.format(forward=OTHER_ORDER.format(offset=offset))
    result = evaluate(problem, candidate, timing_budget_s=0.5)
    assert result.status == "correct", result.reason
    assert result.timed
    assert result.correctness is not None
    assert result.correctness["rel_frobenius"] > 1e-2  # far beyond what would do elsewhere


def test_timed_calls_are_held_against_double_precision(evaluate: Evaluate) -> None:
    problem = PROBLEM.format(dtype="float", offset=1e4)

    def judged(later: int) -> Evaluation:
        forward = FURTHER.format(offset=1e4, later=later)
        return evaluate(problem, CANDIDATE.format(forward=forward), timing_budget_s=0.5)

    steady = judged(3)
    assert steady.status == "correct", steady.reason
    further = judged(10)
    assert further.status == "incorrect", further.reason
    assert "a timed call" in further.reason


def trial_of(share: float, size: int) -> Any:
    return SimpleNamespace(
        tolerance=Tolerance({}),
        comparison=Comparison(limit_share=share),
        reference=SimpleNamespace(outputs=[torch.zeros(size)]),
        labels=["output"],
        exact=lambda *_: None,
        timed_checks=0,
    )


def test_limits_move_for_what_double_precision_explains_and_no_further() -> None:
    truth = torch.linspace(1, 2, 100, dtype=torch.float64)
    eager, other = (truth + 1e-3).float(), (truth - 3e-3).float()
    wrong = (truth - 1e-2).float()
    check = TimedCheck(trial_of(60.0, 100))
    check([other], [eager])
    check([wrong], [eager])  # not looked at closely
    check([other], [eager], [truth])
    with pytest.raises(Mismatch, match="timed call"):
        check([wrong], [eager], [truth])
    with pytest.raises(Mismatch):  # nothing was accepted for double precision: nothing needs to be now
        TimedCheck(trial_of(0.9, 100))([other], [eager])


def test_of_few_elements_most_have_to_be_near() -> None:
    """Eager's one number is sometimes right by chance."""
    truth = torch.tensor([1e-3], dtype=torch.float64)
    lucky, usual = (truth + 1e-9).float(), (truth + 1e-6).float()
    other, wrong = (truth - 2e-6).float(), (truth - 1e-5).float()
    check = TimedCheck(trial_of(40.0, 1))
    for eager in (usual, lucky, usual):
        check([other], [eager], [truth])
    check.finish()
    check = TimedCheck(trial_of(40.0, 1))
    for eager in (usual, lucky, usual):
        check([wrong], [eager], [truth])
    with pytest.raises(Mismatch, match="timed call"):
        check.finish()


def test_a_slot_is_left_as_it_was() -> None:
    flats = [[torch.arange(4.0)]]
    trial: Any = SimpleNamespace(
        reference=SimpleNamespace(flats=flats),
        contents=lambda slot: [t.clone() for t in flats[slot]],
        exact=lambda slot, seed: [flats[slot][0].double() * seed],
    )
    (found,) = exact_result(trial, 0, [torch.full((4,), 2.0)], 3) or [None]
    assert found is not None
    assert found.tolist() == [6.0] * 4
    assert flats[0][0].tolist() == [0.0, 1.0, 2.0, 3.0]
