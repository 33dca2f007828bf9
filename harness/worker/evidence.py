"""In the judge: what is asked of a candidate that is correct so far, and what the answers mean.

Outputs are bytes in shared memory, as always. What the child says about itself may be a lie: then a cheat
that gains nothing (the clock, the inputs and the comparison are here) goes without its name.
"""

from __future__ import annotations

import ast
import time
from pathlib import Path
from typing import Any

from harness.worker.guard import RULES, inspect_candidate
from harness.worker.inputs import DISTRIBUTIONS
from harness.worker.processes import descendants
from harness.worker.rounds import compare_all
from harness.worker.side import ChildFailure, Mismatch
from harness.worker.trial import Trial, Verdict

ASK_LIMIT_S = 30.0
TOLERANCE_FACTOR = 2.0  # these calls are compared without a double-precision result
SHARE_CALLS = 3
LOOK_EVERY_S, LOOKS = 0.02, 50


def look_for_evidence(trial: Trial) -> None:
    """Raises Verdict where a correct candidate turns out to be none of its own making."""
    _look_for_work_unasked(trial)
    _look_at_integrity(trial)
    seen = _observe(trial)
    if not seen:
        return
    if trial.device == "cpu":
        _share(trial, seen)
        if trial.request.policy == "pure" and seen["library"]:
            name = seen["library"][0]
            trial.flag("library-call", "reject", f"{name} is not the candidate's own")
            raise Verdict("rejected", f"library-call: {name} computes, which the policy `pure` forbids")
    if trial.kernels.defined and trial.stable:
        _look_for_decoys(trial, seen)


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


def _observe(trial: Trial) -> dict[str, Any]:
    """Calls on fresh inputs, one while everything speaks of timing; what was seen, or nothing.

    A result that is wrong only then shows a candidate that looks for signs of being timed. One that raises is
    none: an honest one may stumble over a variable that it cannot parse.
    """
    trial.candidate.ask({"op": "experiments"}, ASK_LIMIT_S)
    try:
        problem = _wrong(trial, "observed")
    except ChildFailure as failure:
        if not failure.log:  # the child is gone
            raise
        problem = "raises"
    seen = _seen(trial)
    if problem:
        plain = _wrong(trial, "counted")
        if plain:
            raise Mismatch(f"{plain} (a later call)")
        if problem != "raises":
            detail = f"{problem}, once environment, arguments and callers look like a benchmark"
            trial.flag("phase-sniffing", "reject", detail)
            raise Verdict("rejected", f"phase-sniffing: {detail}")
        seen = _seen(trial)
    return seen


def _wrong(trial: Trial, which: str) -> str:
    """What is wrong with a call on fresh inputs, or an empty string."""
    trial.fresh(0)
    trial.hand_over(0)
    seed = trial.seed()
    try:
        trial.candidate.call(0, _limit(trial), which, seed)
    except Mismatch as mismatch:
        return str(mismatch)
    trial.call_reference(0, seed)
    if not trial.stable:
        return ""
    outputs = trial.candidate.outputs, trial.reference.outputs
    return compare_all(trial, *outputs, trial.tolerance.widened(TOLERANCE_FACTOR)).problem or ""


def _limit(trial: Trial) -> float:
    return 2 * trial.request.run_limit_s + 10.0  # the first profile of a process takes a second


def _seen(trial: Trial) -> dict[str, Any]:
    """What the child saw, checked for its form; empty where it is none."""
    answer = trial.candidate.ask({"op": "seen"}, ASK_LIMIT_S)
    try:
        launches = answer["launches"]
        return {
            "attempted": int(launches["attempted"]),
            "failed": int(launches["failed"]),
            "complete": bool(launches["complete"]),
            "names": [str(name) for name in launches["names"]],
            "own_us": float(answer["own_us"]),
            "library_us": float(answer["library_us"]),
            "library": [str(name) for name in answer["library"]],
        }
    except (KeyError, TypeError, ValueError):
        return {}


def _share(trial: Trial, first: dict[str, Any]) -> None:
    """Share of own code in the time that own code and library operators took."""
    if trial.interpreted or trial.kernels.opaque or not first["complete"]:
        return
    own = library = 0.0
    if first["own_us"]:
        for _ in range(SHARE_CALLS):
            trial.candidate.call(0, _limit(trial), "counted", trial.seed())
            seen = _seen(trial)
            own, library = own + seen.get("own_us", 0.0), library + seen.get("library_us", 0.0)
    else:
        library = first["library_us"]
    if own + library > 0:
        trial.result.custom_kernel_share = own / (own + library)


# -- integrity -------------------------------------------------------------------------------------------


def _look_at_integrity(trial: Trial) -> None:
    answer = trial.candidate.ask({"op": "integrity"}, ASK_LIMIT_S)
    found = [(str(rule), str(detail)) for rule, detail in _pairs(answer.get("changes"))]
    for source in answer.get("sources") or []:
        found += _executed(str(source))
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


def _executed(source: str) -> list[tuple[str, str]]:
    """Text that was compiled while the candidate ran is judged as if it had stood in the file."""
    try:
        findings = inspect_candidate(ast.parse(source)).findings
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [(f.rule, f"{f.detail} (in text that it executed)") for f in findings if f.severity == "reject"]


# -- ablation --------------------------------------------------------------------------------------------


def _look_for_decoys(trial: Trial, seen: dict[str, Any]) -> None:
    """Own kernels that never run, or without which the result is the same.

    A finding wants the library's operators to have done the work: where none was seen, own code did it in a
    way that is not followed here.
    """
    kernels = trial.kernels
    listed = ", ".join(kernels.defined[:3])
    if kernels.opaque or not seen["complete"]:
        means = ", ".join(kernels.opaque) or "functions that cannot be reached"
        trial.flag("kernels-unchecked", "info", f"launches by way of {means} cannot be followed")
        return
    if seen["attempted"] == seen["failed"]:
        if not seen["library"]:
            return
        if kernels.conditional and not seen["attempted"]:
            trial.flag("own-kernels-unused", "warning", f"{listed} is not used for these inputs")
            return
        tries = f"all {seen['failed']} launches failed" if seen["failed"] else "no launch was tried"
        detail = f"{listed}: {tries}, {seen['library'][0]} and others did the work"
        trial.flag("kernel-never-launched", "reject", detail)
        raise Verdict("rejected", f"kernel-never-launched: {detail} (a fallback)")
    if any(flag["rule"] in ("constant-output", "mutates-state") for flag in trial.result.flags):
        return
    done = _ablate(trial, seen)
    if done:
        detail = (
            f"without {', '.join(done['names'][:3])} ({done['attempted']} launches) the result is the same"
        )
        trial.flag("decoy-kernel", "reject", detail)
        raise Verdict("rejected", f"decoy-kernel: {detail}, {done['library'][0]} and others do the work")


def _ablate(trial: Trial, before: dict[str, Any]) -> dict[str, Any]:
    """What was seen of calls that were right without own kernels; empty where one was not, or failed."""
    seen: dict[str, Any] = {}
    for name in ("", *DISTRIBUTIONS):
        trial.fresh(0)
        flats = trial.reference.flats[0]
        if name:
            for flat in flats:
                if flat.is_floating_point():
                    flat.copy_(DISTRIBUTIONS[name](flat, trial.generator))
            if not trial.reference_takes(0):
                continue
        trial.hand_over(0)
        seed = trial.seed()
        try:
            trial.candidate.call(0, _limit(trial), "ablated", seed)
            seen = _seen(trial)
            trial.call_reference(0, seed)
        except (
            ChildFailure,
            Mismatch,
        ):  # it cannot do without them; what became of the child matters no more
            return {}
        outputs = trial.candidate.outputs, trial.reference.outputs
        wrong = compare_all(trial, *outputs, trial.tolerance.widened(TOLERANCE_FACTOR)).problem
        # Operators that only now appear are those of an honest check that the kernel had failed.
        same = seen and seen["library"] and set(seen["library"]) <= set(before["library"])
        if wrong or not same or not seen["attempted"]:
            return {}
    return seen
