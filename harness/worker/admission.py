"""Before any comparison: is the problem usable, is the candidate allowed, and do both sides start equal?"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import Any

import torch

from harness.worker import environment
from harness.worker.compare import parse_tolerance
from harness.worker.device import driver as device
from harness.worker.device.timing import slots_for
from harness.worker.guard.gate import look_at_text
from harness.worker.interpreter.install import UNCHECKED
from harness.worker.jail import sandbox
from harness.worker.jail.building import ended_when_idle
from harness.worker.jail.watch import Watch, cpu_limit_s
from harness.worker.side import ChildFailure, Mismatch, Side
from harness.worker.state import Entry, match_state
from harness.worker.trial import LOAD_LIMIT_S, Trial, Verdict, all_finite, same_bytes
from harness.worker.values import layout_bytes, skeleton
from harness.worker.wire import WireError

BIG_INPUT = 1 << 30  # bytes of one input set from which on a single slot has to do
COPIES = 4  # of inputs and of outputs: for both sides, for the judge, and while they are replaced
GLANCE_CALLS = 24  # at most, of the reference


def start_devices(trial: Trial) -> None:
    """Opens the device in all three processes at once; raises Verdict where that fails."""
    sides = (trial.reference, trial.candidate)
    try:
        for side in sides:
            side.child.channel.send({"op": "start_device"})
        device.start()
        for side in sides:
            side.await_answer(LOAD_LIMIT_S, "opening the device")
    except (ChildFailure, WireError, RuntimeError, OSError) as error:
        raise Verdict("harness_error", f"the device cannot be used: {error}") from error
    trial.result.device = device.name()
    trial.result.environment |= device.facts()


def look_at_problem(trial: Trial) -> None:
    """Loads and runs the reference, shares memory with it, and flags what makes the problem weak."""
    ref = trial.reference
    message = {
        "op": "load",
        "source": trial.request.problem,
        "threads": trial.threads,
        "seed": trial.model_seed,
        "shape": trial.shape,
        "precision": trial.request.precision,
        "sizes": trial.request.sizes,
    }
    loaded = ref.ask(message, LOAD_LIMIT_S, what="importing the problem")
    trial.shapes = [(name, weight) for name, weight in loaded["shapes"]]
    if trial.shape == 0:  # all sizes share the time for measuring
        budget_s = trial.request.timing_budget_s / len(trial.shapes)
        trial.request = replace(trial.request, timing_budget_s=budget_s)
    trial.tf32, trial.gradients = loaded["tf32"], loaded["gradients"]
    trial.tolerance = parse_tolerance(loaded["tolerance"], tf32=trial.tf32)
    trial.init, trial.state, trial.state_layout = loaded["init"], loaded["state"], loaded["state_layout"]
    ref.map_state(trial.state_layout, LOAD_LIMIT_S)
    drawn = ref.ask({"op": "generate", "seed": trial.seed()}, LOAD_LIMIT_S, what="get_inputs()")
    trial.structure, trial.layout = drawn["structure"], drawn["layout"]
    _expect_room(trial, layout_bytes(trial.layout))
    trial.slots = 1 if trial.device != "cpu" or layout_bytes(trial.layout) > BIG_INPUT else 2
    ref.map_inputs(trial.structure, trial.layout, trial.slots, LOAD_LIMIT_S)
    ref.ask({"op": "store", "slot": 0, "layout": trial.layout}, LOAD_LIMIT_S)
    _, answer = ref.first_call(0, trial.request.run_limit_s, "eager", trial.seed())
    if "mismatch" in answer:
        raise Verdict("invalid_problem", f"the reference {answer['mismatch']}")
    trial.output_layout, trial.output_structure = answer["layout"], skeleton(answer["structure"])
    if not any(entry["span"] for entry in trial.output_layout):
        raise Verdict("invalid_problem", "the reference returns no tensor with elements")
    _expect_room(trial, layout_bytes(trial.output_layout))
    count = len(trial.output_layout)
    trial.labels = loaded["labels"] or ([f"output {i}" for i in range(count)] if count > 1 else ["output"])
    if trial.device != "cpu":
        more = slots_for(trial) - trial.slots
        if more:
            ref.map_inputs(trial.structure, trial.layout, more, LOAD_LIMIT_S)
            trial.slots += more
    ref.map_output(trial.output_structure, trial.output_layout, LOAD_LIMIT_S, trial.places)
    _look_for_weakness(trial)


def _expect_room(trial: Trial, size: int) -> None:
    """Raises Verdict where this machine's memory does not hold what both sides and the judge keep of it."""
    left = environment.available_memory() if trial.device == "cpu" else None
    if left is not None and COPIES * size > left:
        told = f"{COPIES} copies of {size / 2**30:.3g} GiB of inputs or outputs"
        raise Verdict("harness_error", f"this machine has {left / 2**30:.3g} GiB of memory left: not {told}")


def _look_for_weakness(trial: Trial) -> None:
    limit_s = LOAD_LIMIT_S + GLANCE_CALLS * trial.request.run_limit_s
    seen = trial.reference.ask({"op": "glance"}, limit_s, what="looking at the problem")
    for found in seen["findings"]:
        trial.flag(found["rule"], found["severity"], found["detail"])
    trial.mutates = any(found["rule"] == "mutates-inputs" for found in seen["findings"])
    trial.stable, trial.stateful = seen["repeats"], seen["restarts"] and not seen["repeats"]
    try:
        trial.typical_s["eager"] = trial.call_reference(0, trial.seed())
    except Mismatch as mismatch:
        raise Verdict("invalid_problem", f"a later call of the reference: {mismatch}") from mismatch


def look_at_candidate(trial: Trial) -> None:
    """Applies the static rules; raises Verdict for a syntax error or a finding."""
    gate = look_at_text(trial.request.candidate)
    trial.kernels = gate.inspection.kernels
    for flag in gate.flags:
        trial.flag(**flag)
    if gate.status is not None:
        raise Verdict(gate.status, gate.reason)
    has_triton = bool(trial.kernels.triton) or trial.kernels.written
    trial.interpreted = trial.device == "cpu" and has_triton
    if trial.interpreted:
        trial.flag("interpreted", "info", f"run by Triton's interpreter: {UNCHECKED}")


def jail(trial: Trial, *, require_sandbox: bool) -> None:
    """Puts the candidate's child into its jail. One that is weaker than asked is flagged, or a Verdict."""
    request, cand = trial.request, trial.candidate
    shared = trial.slots * layout_bytes(trial.layout) + layout_bytes(trial.output_layout)
    memory = request.memory_limit + shared + layout_bytes(trial.state_layout)
    cpu_s = cpu_limit_s(request, trial.threads)
    jailed = cand.ask(
        {
            "op": "jail",
            "scratch": str(trial.scratch),
            "threads": trial.threads,
            "environment": {"TRITON_INTERPRET": "1"} if trial.device == "cpu" else {},
            "readable": sandbox.readable_paths(),
            "device": trial.device,
            "memory": memory,
            "cpu_s": cpu_s,
            "processes": sandbox.user_tasks() + sandbox.TASK_LIMIT,
        },
        LOAD_LIMIT_S,
    )
    Watch(cand.child, memory, cpu_s, sandbox.TASK_LIMIT).start()
    missing = {name: why for name, why in jailed["report"].items() if why}
    if missing:
        detail = "weaker than asked: " + "; ".join(f"{name}: {why}" for name, why in sorted(missing.items()))
        trial.flag("sandbox", "warning", detail)
        if require_sandbox:
            raise Verdict("harness_error", f"the sandbox is {detail}")


def admit(trial: Trial, *, require_sandbox: bool) -> None:
    """Jails, builds and connects the candidate, gives both sides equal weights and calls it once."""
    jail(trial, require_sandbox=require_sandbox)
    connect(trial)


def connect(trial: Trial) -> None:
    """Builds the candidate for the sizes that the reference has now, shares memory with it, gives both sides
    equal weights and calls it once.
    """
    request, cand = trial.request, trial.candidate
    deadline = time.monotonic() + request.build_limit_s
    message = {
        "op": "build",
        "source": request.candidate,
        "init": trial.init,
        "seed": trial.model_seed,
        "tf32": trial.tf32,
        "interpreted": trial.interpreted,
    }
    built = cand.ask(message, request.build_limit_s, what="building")
    cand.map_inputs(trial.structure, trial.layout, trial.slots, LOAD_LIMIT_S)
    cand.map_output(trial.output_structure, trial.output_layout, LOAD_LIMIT_S, trial.places)
    cand.map_state(trial.state_layout, LOAD_LIMIT_S)
    trial.matching = match_state(trial.state, _state_of(built, cand))
    if trial.gradients is not None:
        _differentiate(trial)
    equal_weights(trial)
    trial.fresh(0)
    trial.hand_over(0)
    # Whatever is compiled lazily is compiled by the first call: it runs on the build's time.
    left_s, run_s = max(1.0, deadline - time.monotonic()), request.run_limit_s
    with ended_when_idle(cand.child, run_s) if trial.device == "cpu" else contextlib.nullcontext():
        cand.call(0, left_s, "candidate", trial.seed(), finish_s=run_s)


def _differentiate(trial: Trial) -> None:
    """Calls of the candidate are forward and backward from now on."""
    gradients, names = trial.gradients, trial.matching.names
    assert gradients is not None
    if names is None:
        raise Mismatch(f"its gradients cannot be compared: ModelNew has {trial.matching.detail}")
    by_number = {number: name for name, number in names}
    order = [name for name, *_ in trial.state]
    message = {
        "op": "differentiate",
        "names": [by_number[order.index(name)] for name in gradients["names"]],
        "outputs": gradients["outputs"],
        "structure": gradients["structure"],
    }
    trial.candidate.ask(message, LOAD_LIMIT_S)


def _state_of(built: dict[str, Any], candidate: Side) -> list[Entry]:
    """What a candidate says about its state: its module may have written the answer itself."""
    try:
        return [
            (str(name), bool(floating), [int(n) for n in shape]) for name, floating, shape in built["state"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise candidate.failure(WireError("no list of its state"), 0.0, "building") from error


def equal_weights(trial: Trial) -> None:
    """Perturbed weights on both sides; the seeded initial ones where they cannot be loaded into the
    candidate, or where there is nothing to perturb.
    """
    matching, ref = trial.matching, trial.reference
    trial.weights = None
    if not matching.needed:
        if matching.names:
            share_state(trial)
        return
    seed = trial.seed()
    ref.ask({"op": "set_state", "seed": None}, LOAD_LIMIT_S)
    before = trial.reference_output(0, seed)
    trial.weights = trial.seed()
    ref.ask({"op": "set_state", "seed": trial.weights}, LOAD_LIMIT_S)
    after = trial.reference_output(0, seed)
    ignored = trial.stable and same_bytes(before, after)
    if ignored:
        trial.flag(
            "weights-do-not-matter", "warning", "the reference's output does not depend on its weights"
        )
    if matching.names is None:
        trial.weights = None
        if matching.empty and not ignored:
            raise Mismatch(f"ignores the reference's weights: ModelNew has {matching.detail}")
        _look_for_ignored(trial, seed, before)
        trial.flag("weights-not-loaded", "warning", f"judged with its own initial weights: {matching.detail}")
        ref.ask({"op": "set_state", "seed": None}, LOAD_LIMIT_S)
        return
    if all_finite(before) and not all_finite(after):
        trial.flag("weights-not-perturbed", "info", "the reference is not finite with other weights")
        trial.weights = None
    share_state(trial)


def _look_for_ignored(trial: Trial, seed: int, before: list[torch.Tensor]) -> None:
    """Raises Mismatch for weights that start as a constant, matter, and have no place in the candidate.

    Weights that are drawn may be kept in another form, made from the same seed; ones and zeros of a norm may
    just have been left out.
    """
    absent = list(trial.matching.absent)
    if not absent or not trial.stable:
        return
    trial.reference.ask({"op": "set_state", "seed": trial.seed(), "constants": absent}, LOAD_LIMIT_S)
    if not same_bytes(before, trial.reference_output(0, seed)):
        shown = ", ".join(absent[:4])
        raise Mismatch(f"ignores some of the reference's weights: ModelNew has nothing like {shown}")


def renew(trial: Trial) -> None:
    """Instances on both sides that have not been called yet, with the weights that were chosen last."""
    for side in (trial.reference, trial.candidate):
        side.ask({"op": "renew"}, trial.request.build_limit_s)
    if trial.matching.names:
        share_state(trial)
    else:
        trial.reference.ask({"op": "set_state", "seed": trial.weights}, LOAD_LIMIT_S)


def share_state(trial: Trial) -> None:
    """The state that was chosen last on both sides, untouched by any call since."""
    trial.reference.ask({"op": "set_state", "seed": trial.weights}, LOAD_LIMIT_S)
    assert trial.reference.state is not None
    assert trial.candidate.state is not None
    for entry in trial.state_layout:
        trial.candidate.state.flat(entry).copy_(trial.reference.state.flat(entry))
    message = {"op": "load_state", "names": trial.matching.names}
    failed = trial.candidate.ask(message, trial.request.build_limit_s).get("failed")
    if failed:
        trial.flag("load-failed", "info", f"its own way of loading weights failed: {str(failed)[:300]}")
