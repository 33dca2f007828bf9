from __future__ import annotations

import pytest
from search_stubs import PLACE, StubExecutor, StubGenerator

from agent import Search, SearchSettings
from agent.errors import SettingsInvalid
from agent.place import Place
from agent.stop import Progress, StopRules

RULES = StopRules(steps=10, time_limit_s=60, patience=4, target_speedup=2.0)


@pytest.mark.parametrize(
    ("progress", "reason"),
    [
        (Progress(9, 59.0, 1.9, 3), None),
        (Progress(0, 0.0, None, 0), None),
        (Progress(10, 1.0, 1.0, 0), "steps: 10 of 10"),
        (Progress(1, 60.0, None, 0), "time: 60 s of 60 s"),
        (Progress(5, 1.0, 1.0, 4), "no_progress: no better candidate in 4 steps"),
        (Progress(5, 1.0, 2.0, 0), "target_speedup: 2.00x reaches"),
        (Progress(10, 99.0, 2.5, 9), "target_speedup"),
    ],
)
def test_rules(progress, reason):
    found = RULES.check(progress)
    assert found is None if reason is None else found.startswith(reason)


BUDGETS = StopRules(steps=10, tokens=1000, cost_usd=0.5, near_roofline=0.8)


@pytest.mark.parametrize(
    ("progress", "reason"),
    [
        (Progress(9, 1.0, 1.9, 3, 999, 0.49, 0.79), None),
        (Progress(9, 1.0, None, 3), None),
        (Progress(5, 1.0, 1.0, 4, tokens=1000), "tokens: 1,000 of 1,000"),
        (Progress(5, 1.0, 1.0, 4, cost_usd=0.5), "cost: $0.50 of $0.5"),
        (Progress(1, 1.0, None, 1, cost_usd=None), "cost: a step has no known price"),
        (Progress(1, 1.0, 3.0, 1, 2000, None, 0.8), "near_roofline: 80% of what"),
    ],
)
def test_budgets(progress, reason):
    found = BUDGETS.check(progress)
    assert found is None if reason is None else found.startswith(reason)


def test_rules_that_are_not_set_never_fire():
    assert StopRules(steps=10**9).check(Progress(10**6, 1e9, 1e9, 10**6, 10**9, None, 2.0)) is None


def test_nearness_to_unknown_ceilings_is_refused(kb, problem):
    settings = SearchSettings(problem, near_roofline=0.9)
    with pytest.raises(SettingsInvalid, match="ceilings of cpu"):
        Search(kb, StubExecutor(), settings, generator=StubGenerator(), place=Place("cpu"))


def test_a_run_ends_near_the_roofline_and_says_so(kb, problem):
    # 64 bytes in 1 ms are nothing beside 10 GB/s, all of 100 kB/s: the ceiling decides, not the speedup.
    slow = Place("cpu", {}, {"bandwidth_gb_s": 1e-4, "fp32_gflop_s": 100.0})
    settings = SearchSettings(problem, steps=9, near_roofline=0.1)
    result = Search(kb, StubExecutor(), settings, generator=StubGenerator(), place=slow).run()
    assert result.stop_reason.startswith("near_roofline: ")
    assert result.steps < 9
    fast = Search(kb, StubExecutor(), settings, generator=StubGenerator(), place=PLACE).run()
    assert fast.stop_reason.startswith("steps")
