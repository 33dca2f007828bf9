from __future__ import annotations

import pytest

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


def test_rules_that_are_not_set_never_fire():
    assert StopRules(steps=10**9).check(Progress(10**6, 1e9, 1e9, 10**6)) is None
