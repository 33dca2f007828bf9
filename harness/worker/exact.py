"""Where eager itself is far off, only a result in double precision tells right from wrong.

A candidate that was accepted for being about as near to it as eager is may differ from eager by any multiple
of the usual limits. Of its timed calls, some that nobody can predict are held against double precision, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.worker.compare import FEW, Tolerance
from harness.worker.inputs import rewrite
from harness.worker.rounds import compare_all
from harness.worker.side import Mismatch
from harness.worker.trial import Trial

# A later call may come as near to the limits again as a round did, and this many times nearer.
WIDENING = 4.0


class TimedCheck:
    """Compares results of timed calls: most of them with eager's alone, which moves the limits to what the
    rounds needed.

    Eager's few numbers may be right by chance where they cancel; then the candidate's cannot be as near to
    double precision. For results of few elements, most of the calls have to be.
    """

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.wide, self.strict = (widened(trial, WIDENING, bounded=bounded) for bounded in (False, True))
        self.few = few(trial)
        self.exact = 0
        self.failed: list[Mismatch] = []

    def __call__(
        self,
        mine: Sequence[torch.Tensor],
        theirs: Sequence[torch.Tensor],
        double: Sequence[torch.Tensor] | None = None,
    ) -> None:
        """Raises Mismatch. `double`: the reference's result in double precision, where it is known."""
        self.trial.timed_checks += 1
        self.exact += double is not None
        found = compare_all(self.trial, mine, theirs, self.wide if double is None else self.strict, double)
        if not found.problem:
            return
        mismatch = Mismatch(f"{found.problem} (a timed call)", found.rule)
        if double is None or not self.few:
            raise mismatch
        self.failed.append(mismatch)

    def finish(self) -> None:
        """Raises Mismatch where too few calls were near to double precision."""
        if 2 * len(self.failed) > self.exact:
            raise self.failed[-1]


def needed(trial: Trial) -> bool:
    """Whether a round was only accepted for what double precision says."""
    return trial.exact is not None and trial.comparison.limit_share > 1.0


def few(trial: Trial) -> bool:
    """Whether a single result tells little: see TimedCheck."""
    return all(output.numel() < FEW for output in trial.reference.outputs)


def widened(trial: Trial, factor: float, *, bounded: bool) -> Tolerance:
    """`factor` times what the rounds needed of the limits, and at least these.

    `bounded`: without what was only accepted for what double precision says.
    """
    share = trial.comparison.limit_share
    if bounded or not needed(trial):
        share = min(share, 1.0)
    return trial.tolerance.widened(max(1.0, factor * share))


def exact_result(
    trial: Trial, slot: int, contents: Sequence[torch.Tensor], seed: int
) -> Sequence[torch.Tensor] | None:
    """The reference's result in double precision for what a slot held; None where there is none.

    The slot holds afterwards what it holds now.
    """
    if trial.exact is None:
        return None
    now = trial.contents(slot)
    rewrite(trial.reference.flats[slot], contents)
    try:
        return trial.exact(slot, seed)
    finally:
        rewrite(trial.reference.flats[slot], now)
