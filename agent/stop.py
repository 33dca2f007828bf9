"""When a search ends, and the reason that is reported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Where a run stands. `since_best` counts steps; `cost_usd` is None once a step had no known price.

    `best_speedup` and `roofline`, the share of the nearest ceiling that the best reaches, leave compiler-made
    code out.
    """

    steps: int
    elapsed_s: float
    best_speedup: float | None
    since_best: int
    tokens: int = 0
    cost_usd: float | None = 0.0
    roofline: float | None = None
    metered: bool = True  # every answer came with usage figures


@dataclass(frozen=True)
class StopRules:
    """A rule that is None never fires. Times are in seconds of work, pauses between resumes excluded.

    `tokens` are prompt and answer together; `near_roofline` is a share of the nearest ceiling, 0 to 1.
    """

    steps: int
    time_limit_s: float | None = None
    patience: int | None = None
    target_speedup: float | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    near_roofline: float | None = None

    def check(self, progress: Progress) -> str | None:
        """The reason to stop, `rule: explanation`, or None. Goals come first, the step limit last."""
        best = progress.best_speedup
        if self.target_speedup is not None and best is not None and best >= self.target_speedup:
            return f"target_speedup: {best:.2f}x reaches the target of {self.target_speedup:g}x"
        if self.near_roofline is not None and (progress.roofline or 0.0) >= self.near_roofline:
            return f"near_roofline: {progress.roofline:.0%} of what memory or arithmetic allows here"
        if self.tokens is not None:
            if not progress.metered:
                return f"tokens: a step came without usage figures, so {self.tokens:,} cannot be kept to"
            if progress.tokens >= self.tokens:
                return f"tokens: {progress.tokens:,} of {self.tokens:,} tokens are used"
        if self.cost_usd is not None:
            if progress.cost_usd is None:
                return f"cost: a step has no known price, so ${self.cost_usd:g} cannot be kept to"
            if progress.cost_usd >= self.cost_usd:
                return f"cost: ${progress.cost_usd:.2f} of ${self.cost_usd:g} are spent"
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
