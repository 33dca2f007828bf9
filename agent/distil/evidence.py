"""Measuring a skill: one record for each problem and size, in the form of `evidence.json`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from agent.distil.patterns import Pattern
from agent.distil.sizes import problem_identity
from agent.judge import Executor, finite
from agent.recipe.graph import Unsupported
from harness.worker.model import EvaluationRequest, ProblemFacts

Record = dict[str, Any]
_ROUNDS = 10  # of fresh inputs; a candidate on its way has five
NOT_APPLICABLE = "not_applicable"
_KEPT = (
    *("status", "speedup", "speedup_ci", "speedups", "per_shape", "baselines", "candidate_ms", "correctness"),
    *("device", "environment", "timed"),
)


@dataclass(frozen=True)
class Case:
    """A problem at one size. `size` is `own`, or the variant's name in `agent.distil.sizes.variants`."""

    name: str
    source: str
    size: str = "own"


class Measurer:
    """Asks the judge about patterns for one target; `timing_s` bounds the time of each measurement."""

    def __init__(self, executor: Executor, target: str, timing_s: float) -> None:
        self._executor = executor
        self._target = target
        self._timing_s = timing_s

    def facts(self, case: Case) -> ProblemFacts:
        """Raises ProblemError where the problem does not run, ExecutorError."""
        return self._executor.describe(case.source, case.name)

    def measure(self, pattern: Pattern, case: Case, facts: ProblemFacts, about: Mapping[str, Any]) -> Record:
        """The record of a pattern on a case, on fresh seeds; `about` says where the measurement comes from.

        Its status is `not_applicable` where the pattern makes no candidate for the problem.
        """
        record: Record = {
            "problem": case.name,
            "problem_sha256": hashlib.sha256(case.source.encode("utf-8", "surrogatepass")).hexdigest(),
            "problem_identity": problem_identity(case.source),
            "problem_source": case.source,
            "size": case.size,
            "shapes": [list(spec.shape) for spec in facts.inputs],
            "dtypes": [spec.dtype for spec in facts.inputs],
            "target": self._target,
            **about,
        }
        try:
            candidate = pattern.candidate(facts)
        except Unsupported as error:
            return {**record, "status": NOT_APPLICABLE, "reason": str(error), "date": _today()}
        verdict = self._verdict(case, candidate, timing_s=self._timing_s)
        record |= {key: verdict.get(key) for key in _KEPT}
        flags = [flag["rule"] for flag in verdict.get("flags") or []]
        return {**record, "reason": verdict.get("reason") or "", "flags": flags, "date": _today()}

    def correct(self, case: Case, candidate: str) -> bool:
        """Whether a candidate is right; nothing is timed."""
        return bool(self._verdict(case, candidate, timing_s=0.0)["status"] == "correct")

    def _verdict(self, case: Case, candidate: str, *, timing_s: float) -> dict[str, Any]:
        request = EvaluationRequest(
            problem=case.source,
            candidate=candidate,
            problem_name=case.name,
            target=self._target,
            timing_budget_s=timing_s,
        )
        if timing_s:
            request = replace(request, rounds=_ROUNDS, measure_compile=True)
        return finite(self._executor.evaluate(request).to_json())


def merged(before: list[Record], measured: list[Record]) -> list[Record]:
    """Evidence with new measurements, each in place of the one of the same problem, size and target."""
    fresh = {_key(record): record for record in measured}
    kept = [record for record in before if _key(record) not in fresh]
    return [*kept, *fresh.values()]


def _key(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(record.get(key) for key in ("problem_sha256", "size", "target"))


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
