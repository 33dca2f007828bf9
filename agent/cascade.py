"""Stages of an evaluation, the cheapest first: a candidate that fails one costs nothing further.

1. `gate`: its text alone, by the judge's static rules, in this process
2. `tiny`: built and compared on small sizes, where that is cheaper than what it saves
3. `full`: the verdict on the problem's own sizes: built, compared and timed, up to the first failure
4. `profile`: a closer look at a candidate that is faster than everything before it

What each stage came to and cost is kept in the evaluation as `stages`.
"""

from __future__ import annotations

import ast
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from harness.worker.guard.gate import look_at_text
from harness.worker.model import Evaluation

Ask = Callable[..., dict[str, Any]]

_ONE_AT_A_TIME = threading.Lock()  # the static rules raise Python's recursion limit, which threads share
# A failure on tiny sizes that is one on the full sizes, too. What raises may only refuse the sizes.
_CONCLUSIVE = ("compile_error", "rejected", "timeout", "incorrect")
# A failing candidate costs about so many calls of the reference before the judge looks at it.
_CALLS = 40
# Seconds that a tiny stage takes, before one was seen.
_TINY_S = 1.5
# Sizes are halved down to these: batches to a pair, lengths to what still fills a block.
_FEW, _LENGTH = 2, 64
# Smaller by less than this factor is not worth a stage.
_SHRINK = 8


@dataclass
class _Costs:
    """Mean seconds, and how often a candidate failed the tiny stage."""

    tiny_s: float = 0.0
    tiny: int = 0
    caught: int = 0
    failed_s: float = 0.0
    failed: int = 0


class Cascade:
    """Judges the candidates of one run. `ask(candidate, **changes)` is the harness's answer to the run's
    request with these fields changed, as JSON; `profile` is the level of the last stage, or `none`.

    `eager_ms` is the time of one call of the reference, if known. Without `on`, only the full stage is left.
    """

    def __init__(
        self, ask: Ask, problem_source: str, *, eager_ms: float | None, profile: str = "none", on: bool = True
    ) -> None:
        self._ask = ask
        self._profile = profile
        self._on = on
        self._sizes, self._replaced = tiny_sizes(problem_source) if on else ({}, frozenset())
        self._eager_s = (eager_ms or 0.0) / 1000
        self._costs = _Costs()

    def verdict(self, candidate: str, *, best: float = 0.0, **changes: Any) -> dict[str, Any]:
        """The evaluation of the stage that decided, with `stages`. `best` is the speedup to beat for a
        profile; `changes` go into the request of the full stage.
        """
        stages: list[dict[str, Any]] = []
        for look in (self._gate, self._tiny) if self._on else ():
            failed = look(candidate, stages)
            if failed is not None:
                return {**failed, "stages": stages}
        evaluation = self._timed("full", stages, lambda: self._ask(candidate, **changes))
        if evaluation["status"] not in ("correct", "compiled"):
            self._costs.failed += 1
            self._costs.failed_s += stages[-1]["seconds"]
        if (
            self._profile != "none"
            and evaluation["status"] == "correct"
            and (evaluation.get("speedup") or 0) > best
        ):
            looked = self._timed(
                "profile", stages, lambda: self._ask(candidate, profile=self._profile, screen=True)
            )
            found = {
                k: looked.get(k) for k in ("profile", "custom_kernel_share") if looked.get(k) is not None
            }
            evaluation = {**evaluation, **found}
        return {**evaluation, "stages": stages}

    def _gate(self, candidate: str, stages: list[dict[str, Any]]) -> dict[str, Any] | None:
        def look() -> dict[str, Any]:
            with _ONE_AT_A_TIME:
                gate = look_at_text(candidate)
            return Evaluation(gate.status or "compiled", gate.reason, flags=gate.flags).to_json()

        verdict = self._timed("gate", stages, look)
        return None if verdict["status"] == "compiled" else verdict

    def _tiny(self, candidate: str, stages: list[dict[str, Any]]) -> dict[str, Any] | None:
        if not self._worth_it() or _specialised(candidate, self._replaced):
            return None
        costs = self._costs
        verdict = self._timed(
            "tiny", stages, lambda: self._ask(candidate, screen=True, sizes=self._sizes, timing_budget_s=0.0)
        )
        costs.tiny += 1
        costs.tiny_s += stages[-1]["seconds"]
        if verdict["status"] == "invalid_problem":  # the reference does not take these sizes
            self._sizes = {}
        if verdict["status"] not in _CONCLUSIVE:
            return None
        costs.caught += 1
        told = ", ".join(f"{name}={value}" for name, value in self._sizes.items())
        return {**verdict, "reason": f"{verdict.get('reason', '')} (with {told})"}

    def _worth_it(self) -> bool:
        """Whether what a caught candidate saves, times how many are caught, is more than the stage costs."""
        if not self._sizes:
            return False
        costs = self._costs
        saved = costs.failed_s / costs.failed if costs.failed else _CALLS * self._eager_s
        spent = costs.tiny_s / costs.tiny if costs.tiny else _TINY_S
        return saved * (costs.caught + 1) / (costs.tiny + 2) > spent

    @staticmethod
    def _timed(name: str, stages: list[dict[str, Any]], look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        start = time.monotonic()
        verdict = look()
        spent: Mapping[str, float] = verdict.get("spent_s") or {}
        stage = {"stage": name, "status": verdict["status"], "seconds": round(time.monotonic() - start, 4)}
        if spent:
            stage["spent_s"] = dict(spent)
        stages.append(stage)
        return verdict


def tiny_sizes(problem_source: str) -> tuple[dict[str, int], frozenset[int]]:
    """Smaller values for the problem's module-level sizes, and the values that they replace; both empty where
    none can be smaller.

    Only what the inputs alone depend on: a size that Model, its constructor or another name needs stays.
    """
    try:
        tree = ast.parse(problem_source)
    except (SyntaxError, ValueError, RecursionError):
        return {}, frozenset()
    sizes: dict[str, int] = {}
    elsewhere: set[str] = set()
    drawn: set[str] = set()
    for node in tree.body:
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        if isinstance(node, ast.FunctionDef) and node.name == "get_inputs":
            drawn |= names
        else:
            elsewhere |= names
        for name, value in _assigned(node):
            sizes[name] = value
    free = {n: v for n, v in sizes.items() if n in drawn and n not in elsewhere and _shrunk(v) < v}
    tiny = {name: _shrunk(value) for name, value in free.items()}
    if prod(free.values()) < _SHRINK * prod(tiny.values()):
        return {}, frozenset()
    return tiny, frozenset(free.values())


def _assigned(node: ast.stmt) -> list[tuple[str, int]]:
    if not isinstance(node, ast.Assign):
        return []
    found = []
    for target in node.targets:
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        found += [
            (name.id, value.value)
            for name, value in pairs
            if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and type(value.value) is int
        ]
    return found


def _shrunk(value: int) -> int:
    """Halved as long as it stays even and above what is small: what divided the size still does."""
    least = _LENGTH if value > _LENGTH else _FEW
    while value % 2 == 0 and value // 2 >= least:
        value //= 2
    return value


def _specialised(candidate: str, sizes: frozenset[int]) -> bool:
    """Whether one of the sizes stands in the candidate as a number: it may be right for that one alone."""
    tree = ast.parse(candidate)
    return any(
        (type(node.value) is int and node.value in sizes)
        or (isinstance(node.value, str) and any(str(size) in node.value for size in sizes))
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
    )
