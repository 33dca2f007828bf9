"""What the stages of one verdict share: the request, both sides, the random source, and the evaluation so
far.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from harness.worker import environment
from harness.worker.compare import Comparison, Tolerance
from harness.worker.guard.kernels import Kernels
from harness.worker.inputs import rewrite
from harness.worker.model import Evaluation, EvaluationRequest, Status
from harness.worker.side import ChildFailure, Side
from harness.worker.state import Matching

LOAD_LIMIT_S = 60.0


# A slot and a seed to the reference's result in double precision, or None where that fails.
Exact = Callable[[int, int], Sequence[torch.Tensor] | None]
Blocks = Sequence[Sequence[float]]  # seconds
Ratio = tuple[Blocks, Blocks, float]


class Verdict(Exception):
    """Ends the trial with a status and one line."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Trial:
    """One candidate against one problem."""

    def __init__(
        self,
        request: EvaluationRequest,
        reference: Side,
        candidate: Side,
        scratch: Path,
        device: str = "cpu",
    ) -> None:
        self.request, self.reference, self.candidate, self.scratch = request, reference, candidate, scratch
        self.device = device
        self.target: dict[str, Any] = {}  # what `Target.plain` gives
        self.rng = random.Random(request.seed if request.seed is not None else secrets.randbits(64))
        self.generator = torch.Generator(device).manual_seed(self.seed())
        self.threads = request.threads or environment.usable_cpus()
        self.result = Evaluation("harness_error", target=request.target, baseline=request.baseline)
        self.shape = 0  # the number of the set of sizes that is looked at
        # Known once the problem has been looked at:
        self.shapes: list[tuple[str, float]] = [("main", 1.0)]  # names and weights
        self.tf32 = False  # float32 products may be computed in TF32
        self.gradients: dict[str, Any] | None = None  # of a backward problem: what calls differentiate
        self.labels: list[str] = []  # what to call each result
        self.tolerance = Tolerance({})
        self.structure: Any = None
        self.layout: list[dict[str, Any]] = []
        self.output_structure: Any = None
        self.output_layout: list[dict[str, Any]] = []
        self.init: Any = None
        self.model_seed = self.seed()
        self.state: list[Any] = []
        self.state_layout: list[dict[str, Any]] = []
        self.slots = 2
        self.stable = True  # equal inputs and seeds give equal outputs
        self.stateful = False  # only calls of the same number do, of instances made anew
        self.mutates = False  # the reference changes its inputs
        self.takes_edits = True  # the reference takes inputs with exchanged elements
        # Known once the candidate has been looked at:
        self.kernels = Kernels()
        self.interpreted = False
        self.matching = Matching([], needed=False)
        self.weights: int | None = None  # the seed that perturbs the weights; None: initial ones
        # Filled by the rounds:
        self.comparison = Comparison()
        self.exact: Exact | None = None  # where the reference runs in double precision
        self.rounds = 0
        self.earlier_rounds = 0  # with other sizes
        self.timed_checks = 0
        self.pool: list[list[torch.Tensor]] = []
        self.typical_s: dict[str, float] = {}
        # Of the last timing: what each ratio is taken of, and what its interval is widened by.
        self.ratios: dict[str, Ratio] = {}

    def begin_shape(self, number: int) -> None:
        """Everything that the rounds and the timing of other sizes left is forgotten, but for the figures."""
        self.shape = number
        self.earlier_rounds, self.rounds = self.earlier_rounds + self.rounds, 0
        self.takes_edits = True
        self.pool, self.typical_s, self.ratios = [], {}, {}
        for side in (self.reference, self.candidate):
            side.unmap(LOAD_LIMIT_S)

    @property
    def places(self) -> int:
        """How many whole results each side has room for: on a device, those of a block of calls."""
        return 1 if self.device == "cpu" else self.slots

    def seed(self) -> int:
        return self.rng.getrandbits(62)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the wall time of one stage to what the evaluation says it spent."""
        start = time.monotonic()
        try:
            yield
        finally:
            spent = self.result.spent_s
            spent[name] = round(spent.get(name, 0.0) + time.monotonic() - start, 3)

    def flag(self, rule: str, severity: str, detail: str) -> None:
        flag = {"rule": rule, "severity": severity, "detail": detail}
        if flag not in self.result.flags:  # each set of sizes finds the same again
            self.result.flags.append(flag)

    def fresh(self, slot: int) -> None:
        """New inputs under a new secret seed, in the reference's slot."""
        self.reference.ask({"op": "generate", "seed": self.seed()}, LOAD_LIMIT_S, what="get_inputs()")
        self.reference.ask({"op": "store", "slot": slot, "layout": self.layout}, LOAD_LIMIT_S)

    def hand_over(self, slot: int) -> None:
        """The same contents for the candidate."""
        rewrite(self.candidate.flats[slot], self.reference.flats[slot])

    def call_reference(self, slot: int, seed: int) -> float:
        return self.reference.call(slot, self.request.run_limit_s, "eager", seed)

    def probe_reference(self, slot: int, seed: int) -> None:
        """Calls the reference and leaves the slot as it was."""
        kept = self.contents(slot) if self.mutates else []
        try:
            self.call_reference(slot, seed)
        finally:
            if kept:
                rewrite(self.reference.flats[slot], kept)

    def reference_output(self, slot: int, seed: int) -> list[torch.Tensor]:
        """A copy of what the reference returns for a slot, which stays as it was."""
        self.probe_reference(slot, seed)
        return [t.clone() for t in self.reference.outputs]

    def reference_takes(self, slot: int) -> bool:
        """Whether the reference returns, with finite results, for what the slot holds."""
        try:
            self.probe_reference(slot, self.seed())
        except ChildFailure as failure:
            if failure.log:  # it raised; a reference that died ends the trial
                return False
            raise
        return all_finite(self.reference.outputs)

    def refuse_edits(self) -> None:
        self.takes_edits = False
        self.flag("edits-skipped", "info", "the reference does not take inputs with exchanged elements")

    def contents(self, slot: int) -> list[torch.Tensor]:
        """A copy of what a slot holds."""
        return [t.clone() for t in self.reference.flats[slot]]

    def draw(self) -> list[torch.Tensor]:
        """New inputs under a new secret seed; the last slot is overwritten."""
        self.fresh(self.slots - 1)
        return self.contents(self.slots - 1)


def same_bytes(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """Bit-identical, NaN included."""
    return all(
        torch.equal(
            a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8)
        )
        for a, b in zip(first, second, strict=True)
        if a.numel()
    )


def all_finite(tensors: Sequence[torch.Tensor]) -> bool:
    """NaN and infinity are nowhere. Eight-bit floats have no `isfinite` of their own."""
    inexact = (t for t in tensors if t.is_floating_point() or t.is_complex())
    return all(bool(torch.isfinite(t.float() if t.element_size() == 1 else t).all()) for t in inexact)
