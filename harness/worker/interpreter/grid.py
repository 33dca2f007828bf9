"""The order in which the interpreter runs the programs of a launch: random, and one inside another.

A program that waits for another (a lock, a flag, a chain of partial sums) reads the same address over and
over. The interpreter cannot run two programs at once: it runs those that have not begun yet, in the order of
their numbers, while the waiting one stands still. A launch in which each program waits for all others does
not end that way; it is stopped.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from harness.worker.interpreter.memory import Fault, Launch

Program = tuple[int, int, int]
PATIENCE = 32  # accesses of one address, without any other between them, until others are run
STUCK = 5_000  # such accesses when there are no others


class Grid:
    """Runs a launch. `enter` makes a program the current one, `body` runs it."""

    def __init__(
        self, launch: Launch, size: Program, enter: Callable[[Program], None], body: Callable[[], None]
    ) -> None:
        self.launch, self.enter, self.body = launch, enter, body
        self.pending = [(x, y, z) for x in range(size[0]) for y in range(size[1]) for z in range(size[2])]
        self.programs = len(self.pending)
        self.address, self.repeats = -1, 0

    def run(self, rng: random.Random) -> None:
        """All programs; raises what they raise."""
        rng.shuffle(self.pending)
        while self.pending:
            self._run(self.pending.pop())

    def _run(self, program: Program) -> None:
        self.address, self.repeats = -1, 0
        self.enter(program)
        self.launch.begin(program, self.programs)
        self.body()

    def look(self, address: int) -> None:
        """The current program reads one address, perhaps once more."""
        if address != self.address:
            self.address, self.repeats = address, 0
        self.repeats += 1
        if self.repeats < PATIENCE:
            return
        if self.pending:
            self._run_another()
        elif self.repeats > STUCK:
            what = f"kernel {self.launch.kernel}: program {self.launch.program} waits for another one"
            raise Fault("waits", f"{what} that waits, too: the interpreter runs one after another")

    def move(self) -> None:
        """The current program does something else."""
        self.repeats = 0

    def _run_another(self) -> None:
        program = min(self.pending)
        self.pending.remove(program)
        waiting = self.launch.state()
        self._run(program)
        self.launch.resume(waiting)
        self.enter(waiting[0])
        self.address, self.repeats = -1, 0
