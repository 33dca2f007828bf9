"""Measuring on a device: blocks of calls on fresh contents, timed by events and checked by the judge's clock.

A block of n calls costs a + n (g + t) seconds by the judge's clock: a for the round trip, g for clearing the
cache and copying the result out, t for the call. The same block of a forward that does nothing costs a + n g.
Blocks of two lengths that nobody can predict give both slopes, and their difference is t by a clock that no
candidate can reach. The times that are reported are those of the device's events, which are finer; they have
to agree with it.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from harness.worker.device.driver import free_bytes
from harness.worker.device.nvml import DeviceWatch, Disturbance
from harness.worker.inputs import rewrite, sparse_edit
from harness.worker.side import Block, Mismatch
from harness.worker.stats import quantile
from harness.worker.timing import Check, Contestant, Exact, Measurement
from harness.worker.trial import Trial
from harness.worker.unasked import Idleness
from harness.worker.values import layout_bytes

MAX_SLOTS = 32
MEMORY_SHARE = 0.35  # of what is free on the device, for all inputs and results of both sides
OVERHEAD_S = 2e-4  # about what a call costs besides the call
SHORT, LONG = (2, 5), (0.7, 1.0)  # calls of a short block; share of the possible ones in a long block
MIN_ROUNDS, MAX_ROUNDS = 6, 24
MAX_SCRUBS = 8
RESAMPLES = 400
# By how much medians differ between evaluations on an H200 (benchmarks/results/h200.md).
DOUBT_SHARE, DOUBT_S = 0.0075, 1.5e-7
# How far the judge's clock and the events may disagree beyond what chance explains. Clearing the cache takes
# tens of microseconds: a call that leaves it out, or goes on behind the events, is off by more than this.
ALLOWED_S, ALLOWED_SHARE = 3e-6, 0.08
COPY_ALLOWED_S = 3e-6
TOO_SHORT_S, TOO_SHORT_SHARE = 2e-5, 0.15


class ClockDisagreement(Exception):
    """The events of the device and the judge's clock tell different times of the candidate's calls."""


def measure_on_device(
    trial: Trial, contestants: Sequence[Contestant], check: Check | None, exact: Exact | None
) -> DeviceMeasurement:
    """Measures once more where the device was disturbed; what remains is flagged."""
    for _ in range(2):
        measured = DeviceStopwatch(trial, contestants, check, exact).measure(trial.request.timing_budget_s)
        if not any(disturbance.passing for disturbance in measured.disturbances):
            break
    for found in measured.disturbances:
        trial.flag(found.rule, "warning" if found.passing else "info", found.detail)
    if measured.note:
        trial.flag("device-not-watched", "info", measured.note)
    return measured


@dataclass
class DeviceMeasurement(Measurement):
    """Also, one a round: seconds per call by the judge's clock, and how much longer copying the result out
    takes than copying one that lies ready. And what disturbed the device.
    """

    slopes: dict[str, list[float]] = field(default_factory=dict)
    copies: dict[str, list[float]] = field(default_factory=dict)
    disturbances: list[Disturbance] = field(default_factory=list)
    note: str = ""

    def paired(self, name: str) -> list[list[float]]:
        """One median a round: calls of one block are no independent samples."""
        return [[statistics.median(block)] for block in self.blocks[name]]


def slots_for(trial: Trial) -> int:
    """How many sets of inputs and results both sides get: as many as a long block has calls."""
    each = 2 * (layout_bytes(trial.layout) + layout_bytes(trial.output_layout))
    return max(1, min(MAX_SLOTS, int(MEMORY_SHARE * free_bytes() / each)))


class DeviceStopwatch:
    """Interleaves contestants in ABBA order until the budget is spent.

    Eager and candidate come right after each other, so that their results can be compared before another
    forward of the reference replaces them.
    """

    def __init__(
        self,
        trial: Trial,
        contestants: Sequence[Contestant],
        check: Check | None,
        exact: Exact | None = None,
    ) -> None:
        self.trial, self.check, self.exact = trial, check, exact
        named = {c.name: c for c in contestants}
        order = [named[name] for name in ("eager", "candidate", "compile") if name in named]
        self.contestants = [Contestant("noop", trial.reference, "noop"), *order]
        self.rng: random.Random = trial.rng
        self.result = DeviceMeasurement({c.name: [] for c in contestants})
        # Where memory lies and how long an event takes stay the same within an evaluation.
        self.result.doubt_share, self.result.doubt_s = DOUBT_SHARE, DOUBT_S
        self.result.slopes = {c.name: [] for c in self.contestants}
        self.result.copies = {c.name: [] for c in self.contestants}
        self.longest, self.scrubs = trial.slots, 1
        self.idleness = Idleness(trial.candidate.child.pid)

    def measure(self, budget_s: float) -> DeviceMeasurement:
        """Times all contestants for about `budget_s` seconds. Raises ChildFailure, Mismatch and
        ClockDisagreement.
        """
        trial, watch = self.trial, DeviceWatch(expected=3)
        cycle = sum(trial.typical_s.values()) + OVERHEAD_S * len(self.contestants)
        self.longest = int(min(trial.slots, max(1.0, budget_s / MIN_ROUNDS / cycle)))
        for slot in range(trial.slots):
            rewrite(trial.reference.flats[slot], self._pool(slot))
            trial.hand_over(slot)
        self.scrubs = self._scrubs()
        self._round(0, warm=True)  # nothing is built or allocated for the first time later on
        start = time.monotonic()
        for number in range(MAX_ROUNDS):
            spent = time.monotonic() - start
            if (number >= MIN_ROUNDS and spent > budget_s) or (number >= 2 and spent > 3 * budget_s):
                break
            self._round(number)
            watch.sample()
        self.result.disturbances, self.result.note = watch.disturbances(), watch.note
        self.result.unasked = self.idleness.finding
        self._compare_clocks()
        self._charge_copies()
        return self.result

    def _scrubs(self) -> int:
        """How often the cache is cleared before each call, so that this takes longer than launching it.

        A single call's round trip, less that of an empty one, is more than its launches can take.
        """
        empty = min(self.trial.reference.call(0, 10.0, "noop", 0) for _ in range(8))
        launch = max(self.trial.typical_s.values()) - empty
        nine = self.trial.reference.block([0], 10.0, "noop", 9, 0).wall_s
        one = self.trial.reference.block([0], 10.0, "noop", 1, 0).wall_s
        return int(min(MAX_SCRUBS, max(1.0, 1 + launch / max((nine - one) / 8, 1e-5))))

    def _round(self, number: int, *, warm: bool = False) -> None:
        long = max(1, round(self.rng.uniform(*LONG) * self.longest))
        short = min(self.rng.randint(*SHORT), max(1, long // 2))
        lengths = [short, long] if self.rng.random() < 0.5 else [long, short]
        if long == short:
            lengths = [long]
        walls: dict[str, dict[int, float]] = {c.name: {} for c in self.contestants}
        events: dict[str, list[float]] = {c.name: [] for c in self.contestants}
        copies: dict[str, list[float]] = {c.name: [] for c in self.contestants}
        for length in lengths:
            slots = self.rng.sample(range(self.trial.slots), length)
            self._refresh(slots)
            kept = self._keep(slots)
            order = self.contestants if number % 2 == 0 else self.contestants[::-1]
            seed = self.rng.getrandbits(31)
            seen: set[str] = set()
            for contestant in order:
                block = self._block(contestant, slots, seed)
                walls[contestant.name][length] = block.wall_s
                # The first call of a block finds the device in another process's hands.
                events[contestant.name] += block.calls_s[1:] or block.calls_s
                copies[contestant.name] += block.copies_s[1:] or block.copies_s
                seen.add(contestant.name)
                if contestant.name in ("eager", "candidate") and {"eager", "candidate"} <= seen:
                    self._compare(slots, kept, seed)
        if warm:
            return
        for contestant in self.contestants:
            name = contestant.name
            if name != "noop":
                self.result.blocks[name].append(events[name])
            self.result.slopes[name].append(_slope(walls[name], walls["noop"]))
            more = statistics.median(copies[name]) - statistics.median(copies["noop"])
            self.result.copies[name].append(more)

    def _block(self, contestant: Contestant, slots: Sequence[int], seed: int) -> Block:
        usual = self.trial.typical_s.get(contestant.name, 0.0)
        limit = self.trial.request.run_limit_s + 2 * len(slots) * usual
        asked = contestant.side is self.trial.candidate
        with contextlib.nullcontext() if asked else self.idleness.watched():
            block = contestant.side.block(slots, limit, contestant.which, self.scrubs, seed)
        if block.mismatches:
            raise Mismatch(f"{block.mismatches[0]} (a timed call)")
        return block

    def _refresh(self, slots: Sequence[int]) -> None:
        """Contents that nobody has seen, equal on both sides."""
        trial = self.trial
        flats = trial.reference.flats
        for slot in slots:
            if not trial.takes_edits:
                rewrite(flats[slot], trial.draw())
            elif trial.mutates:
                rewrite(flats[slot], self._pool(self.rng.randrange(len(trial.pool))))
            if trial.takes_edits:
                sparse_edit(flats, slot, trial.generator).apply(flats)
            trial.hand_over(slot)

    def _pool(self, number: int) -> Sequence[torch.Tensor]:
        return self.trial.pool[number % len(self.trial.pool)]

    def _keep(self, slots: Sequence[int]) -> dict[int, list[torch.Tensor]]:
        """The slot of the call that is compared in double precision, too, and what it holds."""
        if self.exact is None:
            return {}
        slot = self.rng.choice(slots)
        return {slot: self.trial.contents(slot)}

    def _compare(self, slots: Sequence[int], kept: dict[int, list[torch.Tensor]], seed: int) -> None:
        if self.check is None:
            return
        for slot in slots:
            exact = self.exact(slot, kept[slot], seed) if self.exact and slot in kept else None
            self.check(self.trial.candidate.results[slot], self.trial.reference.results[slot], exact)
            self.result.checked += 1

    def _compare_clocks(self) -> None:
        """Raises ClockDisagreement where chance and the allowance do not explain the difference.

        Where it is eager's calls that took longer than the events say, and not the candidate's, the device
        had something else to do whenever the candidate had been asked for nothing.
        """
        low, high, usual, told = self._gap("candidate")
        if low > ALLOWED_S + ALLOWED_SHARE * usual:
            raise ClockDisagreement(f"{told}: work goes on outside of the timed calls")
        if -high > TOO_SHORT_S + TOO_SHORT_SHARE * usual:
            raise ClockDisagreement(f"{told}: calls overlap, or the cache was not cleared")
        low, _, usual, told = self._gap("eager")
        if low > ALLOWED_S + ALLOWED_SHARE * usual:
            self.result.unasked = f"the device was busy while the reference was timed: {told}"

    def _gap(self, name: str) -> tuple[float, float, float, str]:
        """By how many seconds a call takes longer by the judge's clock than by the events (an interval); what
        it takes by these; and both in words.
        """
        slopes = self.result.slopes[name]
        events = [statistics.median(block) for block in self.result.blocks[name]]
        usual = statistics.median(events)
        explained = [e + c for e, c in zip(events, self.result.copies[name], strict=True)]
        gaps = [slope - event for slope, event in zip(slopes, explained, strict=True)]
        told = (
            f"{1e6 * statistics.median(slopes):.1f} µs a call by the judge's clock, {1e6 * usual:.1f} µs by "
            "the device's events"
        )
        return *_median_interval(gaps, self.rng), usual, told

    def _charge_copies(self) -> None:
        """A result that takes longer to copy out than one that lies ready, because of another layout for
        example, left work to whoever reads it. That belongs to the call.
        """
        for contestant in self.contestants[1:]:
            more = statistics.median(self.result.copies[contestant.name])
            if more <= COPY_ALLOWED_S + ALLOWED_SHARE * self._median(contestant.name):
                continue
            self.result.blocks[contestant.name] = [
                [t + more for t in block] for block in self.result.blocks[contestant.name]
            ]
            if contestant.name == "candidate":
                self.result.late_s = more

    def _median(self, name: str) -> float:
        return statistics.median(t for block in self.result.blocks[name] for t in block)


def _slope(walls: dict[int, float], nothing: dict[int, float]) -> float:
    """Seconds per call: of two blocks of different lengths, or of one, where there was room for no more."""
    if len(walls) == 1:
        ((length, wall),) = walls.items()
        return (wall - nothing[length]) / length
    (a, first), (b, second) = walls.items()
    return ((second - nothing[b]) - (first - nothing[a])) / (b - a)


def _median_interval(values: Sequence[float], rng: random.Random) -> tuple[float, float]:
    """99 % bootstrap interval of the median."""
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return quantile(medians, 0.005), quantile(medians, 0.995)
