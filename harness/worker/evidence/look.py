"""In the judge: what is asked of a candidate that is correct so far, and what the answers mean.

Outputs are bytes in shared memory, as always. What the child says about itself may be a lie: then a cheat
that gains nothing (the clock, the inputs and the comparison are here) goes without its name.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.worker.evidence.decoys import (
    TOLERANCE_FACTOR,
    Places,
    call_limit,
    look_for_decoys,
    prepare,
    what_was_seen,
)
from harness.worker.evidence.integrity import KEPT_SOURCES
from harness.worker.exact import few, needed, widened
from harness.worker.guard.inspection import RULES, Inspection, inspect_candidate
from harness.worker.jail.processes import descendants
from harness.worker.rounds import compare_all
from harness.worker.side import ChildFailure, Mismatch
from harness.worker.trial import Trial, Verdict

ASK_LIMIT_S, READ_LIMIT_S = 30.0, 20.0
MORE_CALLS, SLOW_CALL_S = 3, 0.2
LOOK_EVERY_S, LOOKS = 0.02, 50


def look_for_evidence(trial: Trial) -> Callable[[], None]:
    """Raises Verdict where a correct candidate turns out to be none of its own making.

    What it returns is to be called once nothing else is asked of the candidate, which may not survive it.
    """
    with trial.stage("evidence: background"):
        _look_for_work_unasked(trial)
    with trial.stage("evidence: integrity"):
        _look_at_integrity(trial)
    with trial.stage("evidence: calls"):
        seen = observe(trial)
    if not seen:
        return lambda: None
    calls = _repeat(trial, seen)
    if trial.device == "cpu":
        _share(trial, calls)
        if trial.request.policy == "pure" and seen["library"]:
            name = seen["library"][0]
            trial.flag("library-call", "reject", f"{name} is not the candidate's own")
            raise Verdict("rejected", f"library-call: {name} computes, which the policy `pure` forbids")
    places = Places(trial)
    return lambda: look_for_decoys(trial, seen, places)


# -- between the calls -----------------------------------------------------------------------------------


def _look_for_work_unasked(trial: Trial) -> None:
    """The candidate's processes have nothing to do now; OpenMP's threads may spin a while, then sleep."""
    child = trial.candidate.child.pid
    for _ in range(LOOKS):
        running = _running([child, *descendants(child)])
        if not running:
            return
        time.sleep(LOOK_EVERY_S)
    detail = f"{running} threads or processes go on working while they have been asked for nothing"
    trial.flag("background-work", "reject", detail)
    raise Verdict("rejected", f"background-work: {detail}")


def _running(pids: list[int]) -> int:
    """How many threads of these processes run or would, if they were given a CPU."""
    count = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/stat"):
            try:
                count += task.read_text().rpartition(") ")[2].startswith("R")
            except OSError:  # it has just ended
                continue
    return count


# -- one call that is watched ----------------------------------------------------------------------------


def observe(trial: Trial) -> dict[str, Any]:
    """Calls on fresh inputs, one while everything speaks of timing; what was seen, or nothing.

    A result that is wrong only then shows a candidate that looks for signs of being timed. One that raises is
    none: an honest one may stumble over a variable that it cannot parse.
    """
    prepare(trial)
    try:
        problem = _wrong(trial, "observed")
    except ChildFailure as failure:
        if not failure.log:  # the child is gone
            raise
        problem = "raises"
    seen = what_was_seen(trial)
    if problem:
        plain = _wrong(trial, "counted")
        if plain:
            raise Mismatch(f"{plain} (a later call)")
        if problem != "raises":
            detail = f"{problem}, once environment, arguments and callers look like a benchmark"
            trial.flag("phase-sniffing", "reject", detail)
            raise Verdict("rejected", f"phase-sniffing: {detail}")
        seen = what_was_seen(trial)
    return seen


def _wrong(trial: Trial, which: str) -> str:
    """What is wrong with a call on fresh inputs, or an empty string."""
    trial.fresh(0)
    trial.hand_over(0)
    seed = trial.seed()
    try:
        trial.candidate.call(0, call_limit(trial), which, seed)
    except Mismatch as mismatch:
        return str(mismatch)
    told = not few(trial)
    exact = trial.exact(0, seed) if trial.exact is not None and told and needed(trial) else None
    trial.call_reference(0, seed)
    if not trial.stable:
        return ""
    outputs = trial.candidate.outputs, trial.reference.outputs
    tolerance = widened(trial, TOLERANCE_FACTOR, bounded=told).widened(TOLERANCE_FACTOR)
    return compare_all(trial, *outputs, tolerance, exact).problem or ""


def _repeat(trial: Trial, first: dict[str, Any]) -> list[dict[str, Any]]:
    """Some more calls, unless they are slow; nobody's earlier result may change by them."""
    calls = [first]
    if trial.typical_s["candidate"] < SLOW_CALL_S:
        for _ in range(MORE_CALLS):
            trial.candidate.call(0, call_limit(trial), "counted", trial.seed())
            calls.append(what_was_seen(trial) or first)
    if any(seen["reused"] for seen in calls) and not trial.reference.alias:
        raise Mismatch("returns the memory of earlier results again: a caller's earlier result would change")
    return calls


def _share(trial: Trial, calls: list[dict[str, Any]]) -> None:
    """Share of own code in the time that own code and library operators took."""
    if trial.interpreted or trial.kernels.opaque or not all(seen["complete"] for seen in calls):
        return
    later = calls[1:] or calls
    own, library = (sum(seen[key] for seen in later) for key in ("own_us", "library_us"))
    if own + library > 0:
        trial.result.custom_kernel_share = own / (own + library)


# -- integrity -------------------------------------------------------------------------------------------


def _look_at_integrity(trial: Trial) -> None:
    answer = trial.candidate.ask({"op": "integrity"}, ASK_LIMIT_S)
    found = [(str(rule), str(detail)) for rule, detail in _pairs(answer.get("changes"))]
    found += _look_at_executed(trial)
    for rule, detail in found[:5]:
        trial.flag(rule, RULES[rule].severity if rule in RULES else "reject", detail[:300])
    worst = next((f for f in found if f[0] not in RULES or RULES[f[0]].severity == "reject"), None)
    if worst:
        raise Verdict("rejected", f"{worst[0]}: {worst[1][:300]}")
    threads = [str(name)[:60] for name in answer.get("threads") or []]
    if threads:
        trial.flag("own-threads", "info", f"threads of its own run between calls: {', '.join(threads)}")
    left = len(descendants(trial.candidate.child.pid)) - 2  # an init process and the candidate itself
    if left > 0:
        trial.flag("processes-left", "warning", f"{left} processes were still there; they were ended")


def _pairs(value: Any) -> list[Any]:
    return [p for p in value if isinstance(p, list) and len(p) == 2] if isinstance(value, list) else []


def _look_at_executed(trial: Trial) -> list[tuple[str, str]]:
    """Texts that were compiled while the candidate ran are judged as if they had stood in the file."""
    text, page = "", "-"
    while page and len(text) < KEPT_SOURCES:
        answer = trial.candidate.ask({"op": "executed", "start": len(text)}, ASK_LIMIT_S)
        page = str(answer.get("text") or "")
        text += page
    complete = len(text) < KEPT_SOURCES
    found: list[tuple[str, str]] = []
    deadline = time.monotonic() + READ_LIMIT_S
    for source in filter(None, text.split("\0")):
        complete = complete and time.monotonic() < deadline
        if time.monotonic() < deadline:
            inspection = _inspect(source)
            complete = complete and inspection.complete
            found += [(f.rule, f.detail) for f in inspection.findings if f.severity == "reject"]
    if not complete:
        trial.flag("opaque-code", "warning", "it executed more text than is looked at")
    return [(rule, f"{detail} (in text that it executed)") for rule, detail in found]


def _inspect(source: str) -> Inspection:
    try:
        return inspect_candidate(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError):
        return Inspection()
