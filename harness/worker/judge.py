"""The judge: one process per request that owns inputs, seeds, clock, comparison and verdict.

It forks its children before it has read the request, so that a candidate inherits nothing of it, and it never
runs a line of the candidate. Children only ever hand back bytes in shared memory.
"""

from __future__ import annotations

import re
from functools import partial

from harness.worker import environment
from harness.worker.admission import admit, look_at_candidate, look_at_problem, renew, start_devices
from harness.worker.device.timing import ClockDisagreement, measure_on_device
from harness.worker.evidence.look import look_for_evidence
from harness.worker.exact import TimedCheck, exact_result, needed
from harness.worker.floor import check_floor, look_at_arithmetic
from harness.worker.inputs import rewrite
from harness.worker.interpreter.configurations import run_configurations
from harness.worker.machine import (
    FOREIGN_SHARE,
    lock_name,
    measuring_alone,
    prefer_ours,
    spread_threads,
    undisturbed,
)
from harness.worker.model import Evaluation, Status
from harness.worker.packages import missing_package
from harness.worker.profiling.levels import look_closer, no_profiler
from harness.worker.rounds import Rounds, check_alias, check_inputs
from harness.worker.shapes import look_at_other_inputs
from harness.worker.side import KERNEL_FAULTS, ChildFailure, Mismatch
from harness.worker.stats import ratio_interval, summary
from harness.worker.timing import Check, Contestant, Measurement, Stopwatch
from harness.worker.trial import Trial, Verdict
from harness.worker.unasked import measured_in_quiet

LOG_TAIL = 6000
UNFINISHED_WAIT_S = 0.1
# A measurement that others disturbed is repeated, as long as not more than these budgets are spent.
ATTEMPTS, REPEAT_BUDGETS = 3, 2.0
# Signs that a candidate makes threads other than OpenMP's.
_OWN_THREADS = re.compile(r"std::(j?thread|async)|pthread|threading|concurrent|multiprocessing|tbb::")


def judge(trial: Trial, *, require_sandbox: bool) -> Evaluation:
    """The verdict; raises nothing that a problem or a candidate can cause."""
    result = trial.result
    result.device = environment.cpu_name()
    result.environment = {**environment.facts(), "threads": str(trial.threads)}
    try:
        with trial.stage("problem"):
            if trial.device != "cpu":
                start_devices(trial)
            look_at_problem(trial)
        with trial.stage("build"):
            look_at_candidate(trial)
            admit(trial, require_sandbox=require_sandbox)
        result.environment["precision"] = "tf32" if trial.tf32 else "float32"
        _judge_shape(trial)
        if trial.device != "cpu" and (trial.request.policy == "pure" or trial.request.profile != "none"):
            with trial.stage("profile"):
                look_closer(trial)
        elif trial.request.profile != "none":
            no_profiler(trial)
        if trial.request.screen:
            trial.flag("screened", "info", "a first look: no times, no evidence, no other inputs")
        else:
            _look_further(trial)
        result.status, result.reason = "correct", _summary(trial)
    except Verdict as verdict:
        result.status, result.reason = verdict.status, verdict.reason
    except Mismatch as mismatch:
        if mismatch.rule:
            trial.flag(mismatch.rule, "warning", str(mismatch))
        result.status, result.reason = _unfinished(trial) or ("incorrect", str(mismatch))
    except ClockDisagreement as disagreement:
        trial.flag("clock-disagreement", "reject", str(disagreement))
        result.status, result.reason = "rejected", f"clock-disagreement: {disagreement}"
    except ChildFailure as failure:
        blame(trial, failure)
    if trial.shape and result.status != "correct":
        result.reason = f"{result.reason} (shape {trial.shapes[trial.shape][0]})"
    if result.status not in ("correct", "incorrect"):
        result.log = result.log or trial.candidate.child.log.text()[-LOG_TAIL:]
    if trial.rounds + trial.earlier_rounds:
        _record(trial)
    if result.status != "correct":  # times of something wrong are no performance figure
        result.timed, result.speedup, result.speedup_ci, result.speedups = False, None, None, {}
        result.win = None
    return result


def _look_further(trial: Trial) -> None:
    with trial.stage("evidence"):
        finish = look_for_evidence(trial)
    with trial.stage("other inputs"):
        look_at_other_inputs(trial, _judge_shape)
    with trial.stage("evidence"):
        finish()


def _judge_shape(trial: Trial) -> None:
    """Correctness and times for the sizes that both sides have now."""
    rounds = Rounds(trial)
    with trial.stage("rounds"):
        rounds.run()
        if trial.interpreted:
            run_configurations(trial, rounds)
    if trial.request.timing_budget_s > 0 and not trial.interpreted and not trial.request.screen:
        with trial.stage("timing"):
            _time(trial)


def _time(trial: Trial) -> None:
    request = trial.request
    contestants = [Contestant("eager", trial.reference, "eager")]
    if request.measure_compile or request.baseline == "compile":
        problem = _compile_reference(trial)
        if problem and request.baseline == "compile":
            raise Verdict("harness_error", f"no torch.compile baseline: {problem}")
        if problem:
            trial.flag("no-compile-baseline", "warning", problem)
        else:
            contestants.append(Contestant("compile", trial.reference, "compile"))
    contestants.append(Contestant("candidate", trial.candidate, "candidate"))
    for slot in range(trial.slots if trial.device == "cpu" else 0):
        trial.fresh(slot)
        trial.hand_over(slot)
    check = TimedCheck(trial)
    # Calls of a stateful reference can be told apart by their number, as long as it is called as often.
    counted = trial.stateful and trial.device == "cpu" and len(contestants) == 2
    trusted = trial.stable or counted
    if not trusted:
        trial.flag(
            "timed-calls-unchecked",
            "warning",
            "outputs of timed calls cannot be compared: they do not repeat",
        )
    with measuring_alone(lock_name(trial.device)) as alone:
        prefer_ours()
        if trial.device == "cpu" and not _OWN_THREADS.search(request.candidate):
            spread_threads()
        # Device times hardly depend on the CPUs, and are repeated by measures of their own.
        measured, foreign = undisturbed(
            lambda: measured_in_quiet(
                trial, lambda: _measure(trial, contestants, check if trusted else None)
            ),
            REPEAT_BUDGETS * request.timing_budget_s,
            ATTEMPTS if trial.device == "cpu" else 1,
        )
    if foreign > FOREIGN_SHARE or not alone:
        trial.flag(
            "busy-machine", "warning", f"other processes took {foreign:.0%} of the CPUs while it was measured"
        )
    check.finish()
    check_alias(trial)
    if not any(flag["rule"] == "input-not-updated" for flag in trial.result.flags):
        for slot in range(trial.slots):
            check_inputs(trial, slot, check.wide, "a timed call")
    _report_times(trial, measured)
    check_floor(trial)
    look_at_arithmetic(trial)


def _measure(trial: Trial, contestants: list[Contestant], check: Check | None) -> Measurement:
    """Measures; once more with inputs drawn anew if it was an edit of theirs that somebody tripped over."""

    def attempt() -> Measurement:
        if trial.stateful and check is not None:
            renew(trial)
        exact = partial(exact_result, trial) if needed(trial) else None
        if trial.device != "cpu":
            return measure_on_device(trial, contestants, check, exact)
        stopwatch = Stopwatch(
            contestants,
            trial.pool,
            check,
            trial.rng,
            trial.request.run_limit_s,
            draw=None if trial.takes_edits else trial.draw,
            mutates=trial.mutates,
            exact=exact,
        )
        return stopwatch.measure(trial.request.timing_budget_s, trial.typical_s)

    try:
        return attempt()
    except (ChildFailure, Mismatch) as error:
        dead = isinstance(error, ChildFailure) and not error.log
        if dead or not trial.takes_edits or _reference_takes_all(trial):
            raise
    trial.refuse_edits()
    return attempt()


def _unfinished(trial: Trial) -> tuple[Status, str] | None:
    """Whether a wrong result has become another one since: work that forward did not wait for."""
    try:
        message = {"op": "look_again", "wait_s": UNFINISHED_WAIT_S}
        changed = trial.candidate.ask(message, UNFINISHED_WAIT_S + trial.request.run_limit_s).get("changed")
    except ChildFailure:
        return None
    if changed is not True:
        return None
    detail = "the result went on changing after forward had returned: work on another thread or stream"
    trial.flag("unfinished-output", "reject", detail)
    return "rejected", f"unfinished-output: {detail}"


def _reference_takes_all(trial: Trial) -> bool:
    """Whether the reference takes what the slots of both sides hold now."""
    for slot in range(trial.slots):
        for side in (trial.reference, trial.candidate):
            rewrite(trial.reference.flats[slot], side.flats[slot])
            if not trial.reference_takes(slot):
                return False
    return True


def _compile_reference(trial: Trial) -> str:
    """Compiles the reference in its own child; returns why it could not, or an empty string."""
    try:
        message = {"op": "compile", "seed": trial.seed()}
        trial.reference.ask(message, trial.request.build_limit_s, what="torch.compile of the reference")
        trial.typical_s["compile"] = min(
            trial.reference.call(0, trial.request.run_limit_s, "compile", trial.seed()) for _ in range(2)
        )
    except ChildFailure as failure:
        if not failure.log:  # the child is gone, and eager with it
            raise
        return str(failure)
    return ""


def _report_times(trial: Trial, measured: Measurement) -> None:
    result = trial.result
    result.timed = True
    result.candidate_ms = summary([t for block in measured.blocks["candidate"] for t in block])
    for name in ("eager", "compile"):
        if name not in measured.blocks:
            continue
        blocks = measured.blocks[name]
        result.baselines[f"{name}_ms"] = summary([t for block in blocks for t in block])["median"]
        pairs = measured.paired(name), measured.paired("candidate")
        ratio, low, high = ratio_interval(*pairs, seed=trial.seed())
        doubt = measured.doubt(name) + measured.doubt("candidate")
        trial.ratios[name] = (*pairs, doubt)
        result.speedups[name] = {"speedup": ratio, "lo": low / (1 + doubt), "hi": high * (1 + doubt)}
    own = result.speedups[trial.request.baseline]
    result.speedup, result.speedup_ci = own["speedup"], (own["lo"], own["hi"])
    result.win = own["lo"] > 1.0
    if measured.late_s:
        detail = f"{1e3 * measured.late_s:.4f} ms of work after forward had returned were counted, too"
        trial.flag("late-work", "warning", detail)


def _summary(trial: Trial) -> str:
    result = trial.result
    if result.speedup is None or result.speedup_ci is None:
        return f"agrees with the reference in {trial.rounds} rounds; not timed"
    low, high = result.speedup_ci
    told = f"{result.speedup:.2f}x of {result.baseline} (95 % interval {low:.2f} to {high:.2f})"
    return told if low > 1.0 or high < 1.0 else f"{told}: not distinguishable from {result.baseline}"


def _record(trial: Trial) -> None:
    worst = trial.comparison
    dtypes = [entry["dtype"] for entry in trial.output_layout]
    limit = max(trial.tolerance.elementwise(dtype) for dtype in dtypes)
    trial.result.correctness = {
        "rounds": trial.earlier_rounds + trial.rounds,
        "timed_checks": trial.timed_checks,
        "max_abs_err": worst.max_abs_err,
        "max_rel_err": worst.max_rel_err,
        "rel_frobenius": worst.rel_frobenius,
        "err_vs_fp64": worst.err_vs_fp64,
        "eager_err_vs_fp64": worst.eager_err_vs_fp64,
        "atol": limit,
        "rtol": limit,
    }


def blame(trial: Trial, failure: ChildFailure) -> None:
    """A child failed: whose fault is it, and what is that called?"""
    result = trial.result
    result.log = failure.log or failure.side.child.log.text()[-LOG_TAIL:]
    if failure.side is trial.reference:
        if failure.kind == "memory":
            text = f"the reference needs more memory than this machine has left: {failure}"
            result.status, result.reason = "harness_error", text
        elif trial.rounds:
            result.status, result.reason = "harness_error", f"the reference failed later on: {failure}"
        else:
            text = str(failure).removeprefix("InvalidProblem: ")
            result.status, result.reason = "invalid_problem", text
        return
    if failure.kind == "memory" and trial.device != "cpu":
        result.status, result.reason = "runtime_error", str(failure)
    elif failure.kind == "memory":
        limit = trial.request.memory_limit / (1 << 30)
        result.status, result.reason = "runtime_error", f"over the memory limit of {limit:.3g} GiB: {failure}"
    elif failure.kind in KERNEL_FAULTS:
        result.status, result.reason = "incorrect", str(failure)
        trial.flag(failure.kind, "reject", str(failure))
    elif failure.kind in ("timeout", "compile_error"):
        result.status, result.reason = failure.kind, str(failure)  # type: ignore[assignment]
    elif missing := missing_package(str(failure)):
        result.status, result.reason = "harness_error", missing
        trial.flag("missing-package", "info", missing)  # nothing is wrong with the harness
    else:
        result.status, result.reason = "runtime_error", str(failure)
