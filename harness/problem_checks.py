"""What an executor's `check` found about problems: kept by the content of their source, shown beside every
speedup.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError
from harness.target import get_target
from harness.worker.model import SCHEMA_VERSION, Evaluation, EvaluationRequest, ProblemFacts

if TYPE_CHECKING:
    from harness.executor import Executor

Finding = dict[str, str]

PREFIX = "problem:"
UNCHECKED = PREFIX + "unchecked"
# Eager milliseconds up to which a new problem is checked on the way: a check calls the reference some forty
# times, partly in double precision, and compares as often.
CHEAP_MS = 1.0
# What a judge flags about a problem by itself, under names of its own.
_JUDGED = ("constant-output", "random-output", "stateful-output", "input-does-not-matter")


def sha_of(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def stored(cache_dir: Path, source: str) -> list[Finding] | None:
    """The findings about a problem, None where it was not checked yet (or by another version's rules)."""
    try:
        kept = json.loads(_place(cache_dir, source).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return list(kept["findings"]) if kept.get("schema_version") == SCHEMA_VERSION else None


def store(cache_dir: Path, source: str, findings: Sequence[Finding]) -> None:
    place = _place(cache_dir, source)
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_suffix(".part")
    partial.write_text(json.dumps({"schema_version": SCHEMA_VERSION, "findings": findings}), encoding="utf-8")
    partial.replace(place)


def _place(cache_dir: Path, source: str) -> Path:
    return Path(cache_dir) / "problem-checks" / f"{sha_of(source)}.json"


def with_findings(flags: Sequence[Finding], findings: Sequence[Finding] | None) -> list[Finding]:
    """An evaluation's flags with what is known about its problem; None: it was not checked."""
    if findings is None:
        detail = "run `kernelevolve problem check` to know whether a wrong candidate could pass"
        return [*flags, {"rule": UNCHECKED, "severity": "info", "detail": detail}]
    known = {finding["rule"] for finding in findings}
    about = [{**finding, "rule": PREFIX + finding["rule"]} for finding in findings]
    return [*(flag for flag in flags if flag["rule"] not in known), *about]


def weaknesses(flags: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the flags say against a problem: how a wrong candidate could pass for a right one."""
    return [
        str(flag.get("detail", ""))
        for flag in flags
        if flag.get("severity") == "warning"
        and (str(flag.get("rule", "")).startswith(PREFIX) or flag.get("rule") in _JUDGED)
    ]


class CheckedExecutor:
    """Another executor whose speedups come with what is known about their problems.

    `cache_dir` keeps the findings. A problem that was not checked yet is checked after its first speedup,
    where that is cheap; else the evaluation says that it is unchecked.
    """

    def __init__(self, judge: Executor, cache_dir: Path) -> None:
        self.judge, self.cache_dir = judge, cache_dir

    def require(self, target: str) -> None:
        self.judge.require(target)

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        evaluation = self.judge.evaluate(request)
        if evaluation.speedup is None:
            return evaluation
        findings = stored(self.cache_dir, request.problem)
        eager_ms = evaluation.baselines.get("eager_ms")
        cheap = get_target(request.target).device == "cpu" and eager_ms is not None and eager_ms <= CHEAP_MS
        if findings is None and cheap:
            with contextlib.suppress(HarnessError):  # then it stays unchecked, and is said to be
                findings = self.check(request.problem, request.problem_name)
        evaluation.flags = with_findings(evaluation.flags, findings)
        return evaluation

    def describe(self, problem_source: str, name: str = "problem") -> ProblemFacts:
        return self.judge.describe(problem_source, name)

    def check(self, problem_source: str, name: str = "problem") -> list[Finding]:
        """As `judge` does it, with limits and errors of its own; what is found is kept."""
        findings = self.judge.check(problem_source, name)
        store(self.cache_dir, problem_source, findings)
        return findings

    def compiler_source(self, problem_source: str) -> str:
        return self.judge.compiler_source(problem_source)

    def close(self) -> None:
        self.judge.close()
