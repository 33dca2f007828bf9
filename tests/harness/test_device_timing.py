"""Timing on a simulated device: the judge's clock must agree with the events that are reported."""

from __future__ import annotations

import ctypes
import random
import statistics
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.worker.device import driver as device
from harness.worker.device import timing as device_timing
from harness.worker.device.timing import ClockDisagreement, DeviceMeasurement, DeviceStopwatch, _slope
from harness.worker.side import Block, Mismatch
from harness.worker.timing import Contestant

SCRUB_S, COPY_S, ROUND_TRIP_S, JITTER_S = 7e-5, 1e-5, 1e-4, 4e-6
SLOTS = 16


class Machine:
    """One side of a trial on a machine whose true times are known: `true_s` per call of each forward."""

    def __init__(
        self,
        true_s: dict[str, float],
        told: float = 1.0,
        cleared: bool = True,
        copy_s: float = 1e-5,
        taxed: float = 1.0,
    ) -> None:
        self.true_s, self.told, self.cleared, self.copy_s = true_s, told, cleared, copy_s
        self.taxed = taxed  # how much longer everything takes in eager's blocks
        self.rng = random.Random(3)
        self.flats = [[torch.zeros(64)] for _ in range(SLOTS)]
        self.results = [[torch.zeros(64)] for _ in range(SLOTS)]
        self.called: list[int] = []
        self.child = SimpleNamespace(pid=-1)  # no process

    def block(self, slots: Sequence[int], timeout_s: float, which: str, scrubs: int, seed: int) -> Block:
        self.called += slots
        calls = [self.true_s[which] * self.rng.uniform(0.98, 1.02) for _ in slots]
        copy_s = COPY_S if which == "noop" else self.copy_s
        between = copy_s + (SCRUB_S * scrubs if self.cleared or which == "noop" else 0.0)
        if which == "eager":
            calls, between = [self.taxed * t for t in calls], self.taxed * between
        wall = ROUND_TRIP_S + self.rng.uniform(0, JITTER_S) + sum(calls) + between * len(slots)
        for slot in slots:
            self.results[slot][0].copy_(self.flats[slot][0])
        return Block(wall, [self.told * t for t in calls], [copy_s] * len(slots), [])

    def call(self, slot: int, timeout_s: float, which: str, seed: int) -> float:
        return ROUND_TRIP_S + self.true_s[which]


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Callable[..., DeviceMeasurement]:
    class Watch:
        note = ""

        def __init__(self, expected: int) -> None: ...
        def sample(self) -> None: ...
        def disturbances(self) -> list[Any]:
            return []

    monkeypatch.setattr(device_timing, "DeviceWatch", Watch)

    def run(
        candidate: Machine, eager_s: float = 1e-4, check: Any = None, taxed: float = 1.0, **more: Any
    ) -> DeviceMeasurement:
        reference = Machine({"eager": eager_s, "noop": 0.0}, taxed=taxed)
        trial: Any = SimpleNamespace(
            reference=reference,
            candidate=candidate,
            slots=SLOTS,
            rng=random.Random(1),
            generator=torch.Generator().manual_seed(1),
            typical_s={"eager": eager_s + ROUND_TRIP_S, "candidate": eager_s + ROUND_TRIP_S},
            request=SimpleNamespace(run_limit_s=10.0, timing_budget_s=0.05),
            pool=[[torch.randn(64)] for _ in range(4)],
            takes_edits=True,
            mutates=False,
            exact=None,
            hand_over=lambda slot: candidate.flats[slot][0].copy_(reference.flats[slot][0]),
        )
        for name, value in more.items():
            setattr(trial, name, value)
        contestants: Any = [
            Contestant("eager", reference, "eager"),  # type: ignore[arg-type]
            Contestant("candidate", candidate, "candidate"),  # type: ignore[arg-type]
        ]
        return DeviceStopwatch(trial, contestants, check).measure(0.2)

    return run


def test_both_clocks_give_the_true_times(measure: Callable[..., DeviceMeasurement]) -> None:
    result = measure(Machine({"candidate": 4e-5}))
    told = statistics.median(t for block in result.blocks["candidate"] for t in block)
    assert told == pytest.approx(4e-5, rel=0.02)
    assert statistics.median(result.slopes["candidate"]) == pytest.approx(4e-5, abs=2e-6)
    assert statistics.median(result.slopes["eager"]) == pytest.approx(1e-4, abs=2e-6)


@pytest.mark.parametrize("true_s", [1.5e-5, 1e-4, 5e-3])
def test_events_that_tell_half_the_time_are_found_out(
    measure: Callable[..., DeviceMeasurement], true_s: float
) -> None:
    with pytest.raises(ClockDisagreement, match="outside of the timed calls"):
        measure(Machine({"candidate": true_s}, told=0.5))


def test_a_cache_that_is_not_cleared_is_found_out(measure: Callable[..., DeviceMeasurement]) -> None:
    with pytest.raises(ClockDisagreement, match="cache was not cleared"):
        measure(Machine({"candidate": 4e-5}, cleared=False))


def test_a_device_that_is_busy_in_eager_s_turn_is_found_out(
    measure: Callable[..., DeviceMeasurement],
) -> None:
    """What slows a call also slows clearing the cache before it, which the events leave out."""
    assert measure(Machine({"candidate": 4e-5})).unasked == ""
    assert "device was busy" in measure(Machine({"candidate": 4e-5}), taxed=1.4).unasked


def test_a_result_in_another_layout_pays_for_being_copied(
    measure: Callable[..., DeviceMeasurement],
) -> None:
    result = measure(Machine({"candidate": 4e-5}, copy_s=5e-5))
    told = statistics.median(t for block in result.blocks["candidate"] for t in block)
    assert told == pytest.approx(8e-5, rel=0.02)
    assert result.late_s == pytest.approx(4e-5)
    assert measure(Machine({"candidate": 4e-5}, copy_s=8e-6)).late_s == 0.0


def test_results_of_all_timed_calls_are_compared(measure: Callable[..., DeviceMeasurement]) -> None:
    seen = []

    def check(mine: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor], exact: Any) -> None:
        assert exact is None
        assert torch.equal(mine[0], theirs[0])
        seen.append(mine[0].clone())

    candidate = Machine({"candidate": 4e-5})
    result = measure(candidate, check=check)
    assert len(seen) == result.checked == len(candidate.called)


def test_contents_change_between_blocks(measure: Callable[..., DeviceMeasurement]) -> None:
    class Stale(Machine):
        """Keeps the first result of every slot."""

        def block(self, slots: Sequence[int], *rest: Any) -> Block:
            kept = [r[0].clone() for r in self.results]
            answer = super().block(slots, *rest)
            for slot in set(slots):
                if bool(kept[slot].any()):
                    self.results[slot][0].copy_(kept[slot])
            return answer

    def check(mine: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor], exact: Any) -> None:
        assert exact is None
        if not torch.equal(mine[0], theirs[0]):
            raise Mismatch("stale")

    with pytest.raises(Mismatch):
        measure(Stale({"candidate": 4e-5}), check=check)


def test_slope_of_two_blocks_and_of_one() -> None:
    assert _slope({2: 1.0, 10: 5.8}, {2: 0.2, 10: 1.0}) == pytest.approx(0.5)
    assert _slope({4: 3.0}, {4: 1.0}) == pytest.approx(0.5)


def test_structures_have_the_sizes_of_the_driver_api() -> None:
    assert ctypes.sizeof(device._Properties) == 32
    assert ctypes.sizeof(device._Access) == 12
