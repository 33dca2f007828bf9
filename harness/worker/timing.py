"""Measuring: blocks of calls of the reference and the candidate, interleaved, on contents nobody has seen
before.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from harness.worker.inputs import Edit, rewrite, sparse_edit
from harness.worker.side import Side
from harness.worker.unasked import Idleness

SETTLE_S = 0.003  # other processes' OpenMP threads spin this long at most before they sleep
SAMPLE = 4096  # elements of each output compared after an ordinary timed call
MIN_ROUNDS, MAX_ROUNDS = 6, 40
MIN_CALLS, MAX_CALLS = 3, 8
SLOW_CYCLE_S = 0.3  # from here on, one timed call a block has to do
FRESH_SHARE = 0.5  # of the rounds rewrite one slot completely
NOOPS = 5  # empty calls before each round
RESOLUTION_S = 1e-6  # less than any call of a forward takes
# Copying results out is no part of a call. A candidate whose copies take this much longer than eager's (plus
# a share of its own time) leaves work to them: then it is part of the call.
LATE_COPIES, LATE_SHARE, LATE_S = 0.25, 0.1, 5e-5


# Two processes that run one and the same module differ for minutes by up to a tenth, either way, where
# it is bound by memory (benchmarks/results/aa_cpu.md). The cause is not known: it stays when the heap and the
# inputs get other pages, and when the processes are forked in another order. So nothing within an evaluation
# shows it, and medians are known to this share on either side.
CPU_DOUBT_SHARE = 0.04


@dataclass(frozen=True)
class Contestant:
    """Something to be timed: a child and the name of its forward."""

    name: str
    side: Side
    which: str


@dataclass
class Measurement:
    """Seconds per call, block by block, round trip taken off; blocks of one index belong together.

    `late_s` is what was added to the candidate's calls since its results were not finished when they ended;
    `unasked` says what the candidate did while the reference was timed, if it did anything.
    """

    blocks: dict[str, list[list[float]]] = field(default_factory=dict)
    checked: int = 0
    doubt_share: float = CPU_DOUBT_SHARE
    doubt_s: float = 0.0
    late_s: float = 0.0
    unasked: str = ""

    def paired(self, name: str) -> list[list[float]]:
        """The samples that a ratio is taken of, block by block."""
        return self.blocks[name]

    def doubt(self, name: str) -> float:
        """By what share the median of `name` may differ between evaluations beyond what one of them shows."""
        return self.doubt_share + self.doubt_s / statistics.median(
            t for block in self.blocks[name] for t in block
        )


@dataclass
class Plan:
    """One set of contents that every contestant sees: edits in order, the slots called, the elements
    compared.
    """

    edits: list[Edit]
    positions: list[list[torch.Tensor]]
    start: dict[int, Contents]  # what these slots are rewritten with before the block
    rewrites: list[Contents]  # whole new contents before each call, where there are no edits
    exact: int | None  # which call is compared in double precision


Contents = Sequence[torch.Tensor]
# Of each call: seconds, seconds of copying its results out, and what was kept of them.
Calls = tuple[list[float], list[float], list[list[torch.Tensor]]]
# Of the candidate's results, of eager's, and those in double precision where they are known.
Check = Callable[[Contents, Contents, Contents | None], None]
Exact = Callable[[int, Contents, int], Contents | None]  # slot, what it held, seed


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
        exact: Exact | None = None,
    ) -> None:
        self.contestants, self.pool, self.check = list(contestants), pool, check
        self.draw, self.mutates, self.exact = draw, mutates, exact
        self.kept: list[torch.Tensor] = []  # what is computed exactly, as it was before the call
        self.rng = rng
        self.call_limit_s = call_limit_s
        self.round_trip_s = math.inf
        self.copies: dict[str, list[list[float]]] = {}
        self.generator = torch.Generator().manual_seed(rng.getrandbits(62))
        self.asked = next(c.side for c in contestants if c.name == "candidate")
        self.idleness = Idleness(self.asked.child.pid)

    def measure(self, budget_s: float, typical_s: dict[str, float]) -> Measurement:
        """Times all contestants for about `budget_s` seconds; `typical_s` are rough seconds per call."""
        result = Measurement({c.name: [] for c in self.contestants})
        self.copies = {c.name: [] for c in self.contestants}
        self.round_trip_s = math.inf
        cycle = sum(typical_s.values())
        least = MIN_CALLS if cycle < SLOW_CYCLE_S else 1
        self.idleness.settle(SETTLE_S)
        calls = int(min(MAX_CALLS, max(least, budget_s / max(cycle, 1e-6) / MIN_ROUNDS - 1)))
        start = time.monotonic()
        for number in range(MAX_ROUNDS):
            spent = time.monotonic() - start
            if (number >= MIN_ROUNDS and spent > budget_s) or (number >= 2 and spent > 2 * budget_s):
                break
            self._round(number, max(least, calls + self.rng.choice((-1, 0, 1))), result)
        result.blocks = {
            name: [[max(t - self.round_trip_s, RESOLUTION_S) for t in block] for block in blocks]
            for name, blocks in result.blocks.items()
        }
        charge_late_work(result, self.copies)
        result.unasked = self.idleness.finding
        return result

    def _round(self, number: int, count: int, result: Measurement) -> None:
        # The least of all rounds, by the reference's child: on a busy machine an empty call may take longer
        # than a whole timed one does later.
        first = self.contestants[0].side
        empty = [first.noop(self.rng.getrandbits(31)) for _ in range(NOOPS)]
        self.round_trip_s = min(self.round_trip_s, *empty)
        order = self.contestants if number % 2 == 0 else self.contestants[::-1]
        plan = self._plan(count)
        seen: dict[str, list[list[torch.Tensor]]] = {}
        for i, contestant in enumerate(order):
            again = len(plan.start) < len(contestant.side.flats) and any(
                later.side is contestant.side for later in order[i + 1 :]
            )
            times, copies, seen[contestant.name] = self._block(contestant, plan, undo=again)
            result.blocks[contestant.name].append(times)
            self.copies[contestant.name].append(copies)
        if self.check is not None:
            self._compare(seen, plan, result)

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
        exact = self.rng.randrange(len(edits)) if self.exact is not None else None
        return Plan(edits, positions, start, rewrites, exact)

    def _sample(self, size: int) -> torch.Tensor:
        return torch.randint(max(size, 1), (min(SAMPLE, size),), generator=self.generator)

    def _block(self, contestant: Contestant, plan: Plan, *, undo: bool) -> Calls:
        side = contestant.side
        for slot, contents in plan.start.items():
            rewrite(side.flats[slot], contents)
        if side is self.asked:
            time.sleep(SETTLE_S)
            return self._calls(contestant, plan, undo=undo)
        self.idleness.settle(SETTLE_S)
        with self.idleness.watched():
            return self._calls(contestant, plan, undo=undo)

    def _calls(self, contestant: Contestant, plan: Plan, *, undo: bool) -> Calls:
        side = contestant.side
        times, copies, outputs, undos = [], [], [], []
        last = len(plan.edits) - 1
        for i, edit in enumerate(plan.edits):
            if plan.rewrites:
                rewrite(side.flats[edit.slot], plan.rewrites[i])
            undos.append(edit.apply(side.flats))
            if i == plan.exact:
                self.kept = [t.clone() for t in side.flats[edit.slot]]
            elapsed = side.call(edit.slot, self.call_limit_s, contestant.which, edit.seed)
            if i > 0:  # the first call of a block only warms up
                times.append(elapsed)
                copies.append(side.copied_s)
            flat = [view.reshape(-1) for view in side.outputs]
            sampled = plan.positions[i]
            outputs.append([v.clone() if i == last else v[p] for v, p in zip(flat, sampled, strict=True)])
        if undo:  # another contestant of this child starts from the same contents
            for edit in reversed(undos):
                edit.apply(side.flats)
        return times, copies, outputs

    def _compare(self, seen: dict[str, list[list[torch.Tensor]]], plan: Plan, result: Measurement) -> None:
        assert self.check is not None
        for i, (theirs, mine) in enumerate(zip(seen["eager"], seen["candidate"], strict=True)):
            self.check(mine, theirs, self._exactly(plan, i) if i == plan.exact else None)
            result.checked += 1

    def _exactly(self, plan: Plan, number: int) -> Contents | None:
        """What was kept of one call's results, in double precision."""
        assert self.exact is not None
        edit = plan.edits[number]
        whole = self.exact(edit.slot, self.kept, edit.seed)
        if whole is None:
            return None
        flat = [view.reshape(-1) for view in whole]
        last = number == len(plan.edits) - 1
        return flat if last else [v[p] for v, p in zip(flat, plan.positions[number], strict=True)]


def charge_late_work(result: Measurement, copies: dict[str, list[list[float]]]) -> None:
    """Adds to the candidate's calls what its results still took to be finished after they had ended.

    The child says when a call has ended, and reading a result may do the work: only the judge's clock up to
    the moment when the bytes are there cannot be fooled. `copies` are seconds, block by block. An honest
    candidate whose result lies in memory in another order pays for putting it in order.
    """
    mine, theirs = ([statistics.median(block) for block in copies[name]] for name in ("candidate", "eager"))
    excess = [max(0.0, a - b) for a, b in zip(mine, theirs, strict=True)]
    usual = statistics.median(t for block in result.blocks["candidate"] for t in block)
    allowed = LATE_S + LATE_COPIES * statistics.median(theirs) + LATE_SHARE * usual
    if statistics.median(excess) <= allowed:
        return
    result.late_s = statistics.median(excess)
    result.blocks["candidate"] = [
        [t + more for t in block] for block, more in zip(result.blocks["candidate"], excess, strict=True)
    ]
