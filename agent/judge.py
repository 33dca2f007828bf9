"""Asking the harness, and turning its verdict into a node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from agent.errors import EvaluationUnavailable
from agent.graph import SearchNode, fitness_of
from agent.settings import SearchSettings
from harness.worker.model import Evaluation, EvaluationRequest, ProblemFacts

# The winner is judged with more inputs and a longer clock than the candidates on the way.
_FINAL_ROUNDS = 10
_FINAL_TIMING_S = 8.0
_RETRIES = 1
# Verdicts about the harness or the problem, which say nothing about the candidate.
UNJUDGED = ("harness_error", "invalid_problem")
_MISSING = "missing-package"  # the flag of a candidate that needs what this machine lacks
# One candidate may bring the harness down every time; so many in a row mean that the harness is broken.
UNJUDGED_LIMIT = 3


class Executor(Protocol):
    """What a search needs of `harness.LocalExecutor` or another judge."""

    def require(self, target: str) -> None: ...

    def describe(self, problem_source: str, name: str = "problem") -> ProblemFacts: ...

    def evaluate(self, request: EvaluationRequest) -> Evaluation: ...

    def compiler_source(self, problem_source: str) -> str: ...


@dataclass(frozen=True)
class Judge:
    """Asks the executor about candidates for one problem under the limits of one run's settings."""

    executor: Executor
    settings: SearchSettings
    problem_name: str
    problem_source: str

    def verdict(self, candidate: str, *, final: bool = False) -> dict[str, Any]:
        """The evaluation as JSON, against eager; a final one is longer and also against torch.compile.

        Its status is one of UNJUDGED when the harness itself failed twice.
        """
        if not final:
            return self.ask(candidate)
        return self.ask(
            candidate,
            rounds=_FINAL_ROUNDS,
            timing_budget_s=max(_FINAL_TIMING_S, self.settings.step_timing_s),
            measure_compile=True,
        )

    def ask(self, candidate: str, **changes: Any) -> dict[str, Any]:
        """As `verdict`, with `changes` to the fields of the request."""
        settings = self.settings
        request = EvaluationRequest(
            problem=self.problem_source,
            candidate=candidate,
            problem_name=self.problem_name,
            target=settings.target,
            build_limit_s=settings.build_limit_s,
            run_limit_s=settings.run_limit_s,
            memory_limit=settings.memory_limit,
            threads=settings.threads,
            timing_budget_s=settings.step_timing_s,
        )
        request = replace(request, **changes)
        for _ in range(_RETRIES + 1):
            evaluation = self.executor.evaluate(request)
            if not unjudged(evaluation.status, evaluation.flags):
                break
        return finite(evaluation.to_json())


def unjudged(status: str, flags: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a verdict says nothing about the candidate, so that the harness may be broken.

    A candidate in a language that is not installed is none of that: the next one may be in another.
    """
    return status in UNJUDGED and all(flag["rule"] != _MISSING for flag in flags)


def unavailable(verdict: Mapping[str, Any]) -> EvaluationUnavailable:
    """What to raise when the harness is beyond retrying."""
    return EvaluationUnavailable(
        f"the harness could not judge: {verdict['status']}: {verdict.get('reason')}",
        "see: kernelevolve doctor; then resume the run",
    )


def judged(node: SearchNode, evaluation: dict[str, Any]) -> SearchNode:
    """The node with this evaluation and what follows from it."""
    interval = evaluation.get("speedup_ci")
    return replace(
        node,
        status=str(evaluation["status"]),
        fitness=fitness_of(evaluation),
        speedup=evaluation.get("speedup"),
        speedup_ci=(float(interval[0]), float(interval[1])) if interval else None,
        evaluation=evaluation,
    )


def finite(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: such numbers become None, an interval with one of them disappears."""
    return {key: _finite(value) for key, value in evaluation.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        items = [_finite(item) for item in value]
        numbers = all(isinstance(item, int | float) for item in value)
        return None if numbers and any(item is None for item in items) else items
    return value
