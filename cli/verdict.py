"""What a run may claim: speedups with their intervals, and one honest sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.problem_checks import weaknesses


@dataclass(frozen=True)
class Speed:
    """A speedup with its 95 % interval (None where no interval was measured)."""

    value: float
    lo: float | None = None
    hi: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.lo is None or self.hi is None else (self.lo, self.hi)

    @property
    def proven(self) -> bool:
        """Faster beyond doubt: the whole interval lies above 1."""
        return self.lo is not None and self.lo > 1.0


@dataclass(frozen=True)
class Verdict:
    """`level` is good, warn or bad."""

    level: str
    text: str


def against(evaluation: Mapping[str, Any], baseline: str) -> Speed | None:
    """The speedup of an evaluation against `eager` or `compile`, if it was measured."""
    measured = (evaluation.get("speedups") or {}).get(baseline)
    if measured:
        return Speed(measured["speedup"], measured.get("lo"), measured.get("hi"))
    if evaluation.get("baseline", "eager") == baseline and evaluation.get("speedup") is not None:
        lo, hi = evaluation.get("speedup_ci") or (None, None)
        return Speed(evaluation["speedup"], lo, hi)
    return None


def verdict(candidates: Sequence[Mapping[str, Any]], best: Mapping[str, Any] | None) -> Verdict:
    """Judge a run by its candidates (each with `status`, `compiler_made`) and the best one's `evaluation`."""
    if best is None:
        why = "none was tried" if not candidates else f"{len(candidates)} were tried"
        return Verdict("bad", f"No correct kernel was found ({why}).")
    if best["compiler_made"]:
        others = [c for c in candidates if c["status"] == "correct" and not c["compiler_made"]]
        if not others:
            return Verdict("warn", "Only the compiler's own code was correct; this run found nothing better.")
        return Verdict("warn", "No better than the compiler: its own code is the fastest correct candidate.")
    return claim(best["evaluation"])


def problem_weaknesses(candidates: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the evaluations of a run say against its problem, each thing once."""
    found = (weaknesses(c["evaluation"].get("flags") or []) for c in candidates)
    return list(dict.fromkeys(detail for details in found for detail in details))


def claim(evaluation: Mapping[str, Any]) -> Verdict:
    """What a correct candidate's evaluation proves, and what speaks against believing it."""
    found = _measured(evaluation)
    weak = weaknesses(evaluation.get("flags") or [])
    if not weak or evaluation.get("speedup") is None:
        return found
    return Verdict("warn", f"{found.text} But the problem is weak: {'; '.join(weak)}.")


def _measured(evaluation: Mapping[str, Any]) -> Verdict:
    eager, compiled = against(evaluation, "eager"), against(evaluation, "compile")
    if eager is None:
        return Verdict("warn", "A correct kernel was found; it was not timed.")
    if not eager.proven:
        slower = eager.hi is not None and eager.hi < 1
        what = "slower than" if slower else "not measurably faster than"
        return Verdict("warn", f"A correct kernel was found, but it is {what} eager{_ci(eager)}.")
    text = f"{eager.value:.2f} times as fast as eager{_ci(eager)}"
    if compiled is None:
        return Verdict("good", text + "; torch.compile was not measured.")
    if not compiled.proven:
        what = (
            "not measurably faster than torch.compile"
            if compiled.value > 1
            else "no better than the compiler"
        )
        return Verdict("warn", text + f", but {what} ({compiled.value:.2f}{_ci(compiled)}).")
    return Verdict("good", text + f" and {compiled.value:.2f} times as fast as torch.compile{_ci(compiled)}.")


def _ci(speed: Speed) -> str:
    return "" if speed.interval is None else " [{:.2f}, {:.2f}]".format(*speed.interval)
