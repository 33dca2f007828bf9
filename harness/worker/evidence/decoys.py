"""In the judge: do the candidate's own kernels matter? They are switched off, and the results compared."""

from __future__ import annotations

import re
from typing import Any

from harness.worker.inputs import DISTRIBUTIONS
from harness.worker.rounds import compare_all
from harness.worker.side import ChildFailure, Mismatch
from harness.worker.trial import LOAD_LIMIT_S, Trial, Verdict

ASK_LIMIT_S = 30.0
_THREADS = re.compile(r"thread|concurrent|multiprocessing|async", re.IGNORECASE)
TOLERANCE_FACTOR = 2.0  # these calls are compared without a double-precision result


class Places:
    """Where both sides have their inputs and results; other shapes may take these away meanwhile."""

    def __init__(self, trial: Trial) -> None:
        self.shape = trial.shape
        self.layout, self.slots, self.output_layout = trial.layout, trial.slots, trial.output_layout

    def restore(self, trial: Trial) -> None:
        """Places as they were, unless another shape of META has its own by now."""
        if trial.shape == self.shape and trial.layout is not self.layout:
            trial.layout, trial.slots, trial.output_layout = self.layout, self.slots, self.output_layout
            for side in (trial.reference, trial.candidate):
                side.unmap(LOAD_LIMIT_S)
                side.map_inputs(trial.structure, self.layout, self.slots, LOAD_LIMIT_S)
                side.map_output(trial.output_structure, self.output_layout, LOAD_LIMIT_S)
        prepare(trial)


def prepare(trial: Trial) -> None:
    """Makes the child ready for further experiments. Words in its source choose no verdict here, only whether
    to pay for a look at all threads.
    """
    watch_all = trial.request.policy == "pure" or bool(_THREADS.search(trial.request.candidate))
    trial.candidate.ask({"op": "experiments", "all_threads": watch_all}, ASK_LIMIT_S)


def look_for_decoys(trial: Trial, seen: dict[str, Any], places: Places) -> None:
    """Own kernels that never run, or without which the result is the same.

    A finding wants the library's operators to have done the work: where none was seen, own code did it in a
    way that is not followed here.
    """
    kernels = trial.kernels
    if not kernels.defined or not trial.stable:
        return
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
    try:
        places.restore(trial)
        done = _ablate(trial, seen)
    except ChildFailure as failure:
        if failure.side is trial.reference:
            raise
        trial.flag("kernels-unchecked", "info", f"the candidate was gone: {failure}"[:300])
        return
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
            trial.candidate.call(0, call_limit(trial), "ablated", seed)
            seen = what_was_seen(trial)
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


def call_limit(trial: Trial) -> float:
    return 2 * trial.request.run_limit_s + 10.0  # the first profile of a process takes a second


def what_was_seen(trial: Trial) -> dict[str, Any]:
    """What the child saw, checked for its form; empty where it is none."""
    answer = trial.candidate.ask({"op": "seen"}, ASK_LIMIT_S)
    try:
        launches = answer["launches"]
        return {
            "attempted": int(launches["attempted"]),
            "failed": int(launches["failed"]),
            "complete": bool(launches["complete"]),
            "names": [str(name) for name in launches["names"]],
            "reused": bool(answer["reused"]),
            "own_us": float(answer["own_us"]),
            "library_us": float(answer["library_us"]),
            "library": [str(name) for name in answer["library"]],
        }
    except (KeyError, TypeError, ValueError):
        return {}
