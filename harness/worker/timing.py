"""Measuring: blocks of calls of the reference and the candidate, interleaved, on contents nobody has seen
before.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from harness.worker.inputs import Edit, rewrite, sparse_edit
from harness.worker.side import Side

SETTLE_S = 0.003  # other processes' OpenMP threads spin this long at most before they sleep
SAMPLE = 4096  # elements of each output compared after an ordinary timed call
MIN_ROUNDS, MAX_ROUNDS = 6, 40
MIN_CALLS, MAX_CALLS = 3, 8
SLOW_CYCLE_S = 0.3  # from here on, one timed call a block has to do
FRESH_SHARE = 0.5  # of the rounds rewrite one slot completely


@dataclass(frozen=True)
class Contestant:
    """Something to be timed: a child and the name of its forward."""

    name: str
    side: Side
    which: str


@dataclass
class Measurement:
    """Seconds per call, block by block, round trip taken off; blocks of one index belong together."""

    blocks: dict[str, list[list[float]]] = field(default_factory=dict)
    round_trip_s: float = 0.0
    checked: int = 0

    def paired(self, name: str) -> list[list[float]]:
        """The samples that a ratio is taken of, block by block."""
        return self.blocks[name]


@dataclass
class Plan:
    """One set of contents that every contestant sees: edits in order, the slots called, the elements
    compared.
    """

    edits: list[Edit]
    positions: list[list[torch.Tensor]]
    start: dict[int, Contents]  # what these slots are rewritten with before the block
    rewrites: list[Contents]  # whole new contents before each call, where there are no edits


Contents = Sequence[torch.Tensor]
Check = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], None]


class Stopwatch:
    """Interleaves contestants in ABBA order until the budget is spent.

    `pool` holds whole input sets (flat tensors) that replace a slot's contents now and then. `check` is
    called with the results of the candidate and of eager on equal contents; it raises when they disagree.
    `draw` makes a new input set: given where the reference does not take exchanged elements, so that
    contents nobody has seen cannot be had by edits. `mutates` says that forward changes its inputs: then
    every block starts from contents that are rewritten completely.
    """

    def __init__(
        self,
        contestants: Sequence[Contestant],
        pool: Sequence[Contents],
        check: Check | None,
        rng: random.Random,
        call_limit_s: float,
        *,
        draw: Callable[[], Contents] | None = None,
        mutates: bool = False,
    ) -> None:
        self.contestants, self.pool, self.check = list(contestants), pool, check
        self.draw, self.mutates = draw, mutates
        self.rng = rng
        self.call_limit_s = call_limit_s
        self.generator = torch.Generator().manual_seed(rng.getrandbits(62))

    def measure(self, budget_s: float, typical_s: dict[str, float]) -> Measurement:
        """Times all contestants for about `budget_s` seconds; `typical_s` are rough seconds per call."""
        first = self.contestants[0].side
        # The least of them: on a busy machine the median of empty calls may exceed a whole timed call.
        round_trip = min(first.noop(self.rng.getrandbits(31)) for _ in range(41))
        result = Measurement({c.name: [] for c in self.contestants}, round_trip)
        cycle = sum(typical_s.values())
        least = MIN_CALLS if cycle < SLOW_CYCLE_S else 1
        calls = int(min(MAX_CALLS, max(least, budget_s / max(cycle, 1e-6) / MIN_ROUNDS - 1)))
        start = time.monotonic()
        for number in range(MAX_ROUNDS):
            spent = time.monotonic() - start
            if (number >= MIN_ROUNDS and spent > budget_s) or (number >= 2 and spent > 2 * budget_s):
                break
            self._round(number, max(least, calls + self.rng.choice((-1, 0, 1))), result)
        return result

    def _round(self, number: int, count: int, result: Measurement) -> None:
        order = self.contestants if number % 2 == 0 else self.contestants[::-1]
        plan = self._plan(count)
        seen: dict[str, list[list[torch.Tensor]]] = {}
        for i, contestant in enumerate(order):
            again = len(plan.start) < len(contestant.side.flats) and any(
                later.side is contestant.side for later in order[i + 1 :]
            )
            times, seen[contestant.name] = self._block(contestant, plan, result.round_trip_s, undo=again)
            result.blocks[contestant.name].append(times)
        if self.check is not None:
            self._compare(seen, result)

    def _plan(self, count: int) -> Plan:
        side = self.contestants[0].side
        slots = range(len(side.flats))
        start: dict[int, Contents] = {}
        if self.draw is not None or self.mutates:
            start = {slot: self.rng.choice(self.pool) for slot in slots}
        elif self.pool and self.rng.random() < FRESH_SHARE:
            start = {self.rng.choice(slots): self.rng.choice(self.pool)}
        called = [self.rng.choice(slots) for _ in range(count + 1)]
        if self.draw is not None:
            edits = [Edit(slot, self.rng.getrandbits(31), ()) for slot in called]
            rewrites = [self.draw() for _ in called]
        else:
            contents = [start.get(slot, side.flats[slot]) for slot in slots]
            edits, rewrites = [sparse_edit(contents, slot, self.generator) for slot in called], []
        positions = [[self._sample(view.numel()) for view in side.outputs] for _ in edits]
        return Plan(edits, positions, start, rewrites)

    def _sample(self, size: int) -> torch.Tensor:
        return torch.randint(max(size, 1), (min(SAMPLE, size),), generator=self.generator)

    def _block(
        self, contestant: Contestant, plan: Plan, round_trip_s: float, *, undo: bool
    ) -> tuple[list[float], list[list[torch.Tensor]]]:
        side = contestant.side
        for slot, contents in plan.start.items():
            rewrite(side.flats[slot], contents)
        time.sleep(SETTLE_S)
        times, outputs, undos = [], [], []
        last = len(plan.edits) - 1
        for i, edit in enumerate(plan.edits):
            if plan.rewrites:
                rewrite(side.flats[edit.slot], plan.rewrites[i])
            undos.append(edit.apply(side.flats))
            elapsed = side.call(edit.slot, self.call_limit_s, contestant.which, edit.seed)
            if i > 0:  # the first call of a block only warms up
                times.append(max(elapsed - round_trip_s, 1e-7))
            flat = [view.reshape(-1) for view in side.outputs]
            sampled = plan.positions[i]
            outputs.append([v.clone() if i == last else v[p] for v, p in zip(flat, sampled, strict=True)])
        if undo:  # another contestant of this child starts from the same contents
            for edit in reversed(undos):
                edit.apply(side.flats)
        return times, outputs

    def _compare(self, seen: dict[str, list[list[torch.Tensor]]], result: Measurement) -> None:
        assert self.check is not None
        for theirs, mine in zip(seen["eager"], seen["candidate"], strict=True):
            self.check(mine, theirs)
            result.checked += 1
