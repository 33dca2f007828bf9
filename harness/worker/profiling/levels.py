"""A closer look at a correct candidate, as closely as was asked for; what is missing is named."""

from __future__ import annotations

from typing import Any

from harness.worker.profiling.deep import NoCounters, hardware_counters
from harness.worker.profiling.figures import static_profile
from harness.worker.profiling.light import SHOWN, kernel_table, own_share
from harness.worker.side import ChildFailure
from harness.worker.trial import Trial, Verdict

CALLS = 3


def look_closer(trial: Trial) -> None:
    """Fills `custom_kernel_share` and `profile`."""
    level = trial.request.profile
    table, missing = _kernels(trial)
    trial.result.custom_kernel_share = own_share(table)
    if trial.request.policy == "pure":
        _only_own(table)
    if level == "none":
        return
    static = trial.result.profile = static_profile(trial)
    if level == "static":
        return
    missing += static["missing"]
    found: dict[str, Any] = {"level": level, "kernels": table[:SHOWN], "missing": missing}
    if level == "deep":
        trial.flag("deep-profile", "info", "hardware counters were read outside of the jail's privileges")
        try:
            found["counters"] = hardware_counters(trial)
        except NoCounters as error:
            missing.append(str(error))
    trial.result.profile = {**static, **found}


def no_profiler(trial: Trial) -> None:
    """On a CPU nothing looks into kernels."""
    level = trial.request.profile
    missing = [f"{level}: no profiler for the target {trial.request.target}"]
    trial.result.profile = {"level": level, "kernels": [], "missing": missing}


def _kernels(trial: Trial) -> tuple[list[dict[str, Any]], list[str]]:
    slots = [trial.rng.randrange(trial.slots) for _ in range(CALLS)]
    limit = trial.request.run_limit_s + 10.0
    try:
        rows = trial.candidate.ask({"op": "profile", "slots": slots}, limit, what="the profiled calls")[
            "rows"
        ]
        return kernel_table(rows, CALLS), []
    except (ChildFailure, KeyError, TypeError, ValueError) as error:
        return [], [f"torch's profiler (CUPTI): {error}"]


def _only_own(table: list[dict[str, Any]]) -> None:
    foreign = [k["name"] for k in table if k["kind"] == "library"]
    if foreign:
        raise Verdict("rejected", f"library-call: {foreign[0][:160]} is not the candidate's own kernel")
