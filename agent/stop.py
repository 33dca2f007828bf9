"""When a search ends, and the reason that is reported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Where a run stands. `best_speedup` leaves compiler-made code out; `since_best` counts steps."""

    steps: int
    elapsed_s: float
    best_speedup: float | None
    since_best: int


@dataclass(frozen=True)
class StopRules:
    """A rule that is None never fires. Times are in seconds of work, pauses between resumes excluded."""

    steps: int
    time_limit_s: float | None = None
    patience: int | None = None
    target_speedup: float | None = None

    def check(self, progress: Progress) -> str | None:
        """The reason to stop, `rule: explanation`, or None. The target comes first, the step limit last."""
        best = progress.best_speedup
        if self.target_speedup is not None and best is not None and best >= self.target_speedup:
            return f"target_speedup: {best:.2f}x reaches the target of {self.target_speedup:g}x"
        if self.time_limit_s is not None and progress.elapsed_s >= self.time_limit_s:
            return f"time: {progress.elapsed_s:.0f} s of {self.time_limit_s:g} s are used"
        if self.patience is not None and progress.since_best >= self.patience:
            return f"no_progress: no better candidate in {progress.since_best} steps"
        if progress.steps >= self.steps:
            return f"steps: {progress.steps} of {self.steps} steps are done"
        return None


EXHAUSTED = "exhausted: neither the policy nor the generator has anything left to try"
INTERRUPTED = "interrupted: stopped by the user; resume with --resume"
CLOSED = "closed: by the program that drives the search"
