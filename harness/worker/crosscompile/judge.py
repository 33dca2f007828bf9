"""The verdict `compiled`: a candidate built for a device that is not here.

The judge asks its children what the problem's interface is and what became of the candidate. A lie gains
nothing: this verdict never carries a speedup, and on the device everything is judged anew.
"""

from __future__ import annotations

from typing import Any

from harness.worker import environment
from harness.worker.admission import jail, look_at_candidate
from harness.worker.judge import LOG_TAIL, blame
from harness.worker.model import Evaluation
from harness.worker.profiling.figures import listed, read_figures
from harness.worker.side import ChildFailure, Mismatch
from harness.worker.trial import LOAD_LIMIT_S, Trial, Verdict

_UNCHECKED = ("cuda", "cute", "hip")  # languages whose compilers let too much shared memory pass
COMPILE_SHARE = 0.75  # of the build limit, after which further configurations are left out


def compile_candidate(trial: Trial, *, require_sandbox: bool) -> Evaluation:
    """The verdict; raises nothing that a problem or a candidate can cause."""
    target = trial.target
    result = trial.result
    result.device = f"none: compiled for {target['architecture']} on {environment.cpu_name()}"
    result.environment = environment.facts()
    try:
        interface = _interface(trial, target)
        look_at_candidate(trial)
        jail(trial, require_sandbox=require_sandbox)
        compiled = _compile(trial, target, interface)
        _compare(interface, compiled)
        result.profile = _profile(trial, target, compiled)
        result.status, result.reason = "compiled", _summary(trial, target, compiled)
    except Verdict as verdict:
        result.status, result.reason = verdict.status, verdict.reason
    except Mismatch as mismatch:
        result.status, result.reason = "incorrect", str(mismatch)
    except ChildFailure as failure:
        blame(trial, failure)
    if result.status != "compiled":
        result.log = result.log or trial.candidate.child.log.text()[-LOG_TAIL:]
    return result


def _interface(trial: Trial, target: dict[str, Any]) -> dict[str, Any]:
    message = {
        "op": "interface",
        "source": trial.request.problem,
        "threads": trial.threads,
        "target": target,
    }
    return trial.reference.ask(message, LOAD_LIMIT_S, what="importing the problem")


def _compile(trial: Trial, target: dict[str, Any], interface: dict[str, Any]) -> dict[str, Any]:
    request = trial.request
    message = {
        "op": "compile",
        "source": request.candidate,
        "target": target,
        "seed": trial.model_seed,
        "budget_s": COMPILE_SHARE * request.build_limit_s,
        "like": interface.get("output_structure"),
        **{name: interface[name] for name in ("init", "structure", "layout")},
    }
    answer = trial.candidate.ask(message, request.build_limit_s, what="compiling")
    compiled: dict[str, Any] = {
        "kernels": [str(k)[:200] for k in listed(answer, "kernels")],
        "assumed": [str(a)[:200] for a in listed(answer, "assumed")],
        "failed": [str(f)[:300] for f in listed(answer, "failed")],
        "missing": [str(m)[:200] for m in listed(answer, "missing")],
        "stopped": str(answer.get("stopped", ""))[:300],
        "left_out": answer.get("left_out", 0),
        **{n: answer[n] for n in ("mismatch", "output_structure", "output_kinds") if n in answer},
    }
    if compiled["assumed"]:
        detail = "contents of device tensors are not known here and were taken as ones: "
        trial.flag("assumed-values", "warning", detail + "; ".join(compiled["assumed"]))
    if compiled["stopped"]:
        trial.flag("not-followed", "warning", f"followed only up to {compiled['stopped']}")
    if compiled["failed"]:
        detail = f"configurations that do not work on the device: {'; '.join(compiled['failed'])}"
        trial.flag("configurations-fail", "warning", detail)
    if compiled["left_out"]:
        detail = f"{compiled['left_out']} more configurations were not compiled: no time was left"
        trial.flag("configurations-left-out", "warning", detail)
    if compiled["stopped"] and not compiled["kernels"]:
        raise Verdict("harness_error", f"cannot be compiled without the device: {compiled['stopped']}")
    return compiled


def _compare(interface: dict[str, Any], compiled: dict[str, Any]) -> None:
    """Shapes, dtypes and structure, where they are known on both sides: values cannot be compared."""
    if "mismatch" in compiled:
        raise Mismatch(str(compiled["mismatch"])[:400])
    mine, theirs = interface.get("output_kinds"), compiled.get("output_kinds")
    if mine is None or theirs is None or compiled["assumed"]:
        return
    if interface["output_structure"] != compiled["output_structure"]:
        raise Mismatch("returns another structure of values than the reference")
    for i, ((dtype, shape), (wanted, expected)) in enumerate(zip(theirs, mine, strict=True)):
        if dtype != wanted:
            raise Mismatch(f"output {i} has dtype {dtype}, expected {wanted}")
        if shape != expected:
            raise Mismatch(f"output {i} has shape {shape}, expected {expected}")


def _profile(trial: Trial, target: dict[str, Any], compiled: dict[str, Any]) -> dict[str, Any]:
    profile = read_figures(trial, len(compiled["kernels"]))
    for figures in profile["static"]:
        _within(figures, target)
    profile["missing"] += compiled["missing"]
    if trial.request.profile in ("light", "deep"):
        profile["missing"].append(f"{trial.request.profile}: needs the device")
    return profile


def _within(figures: dict[str, Any], target: dict[str, Any]) -> None:
    """Raises Verdict where a kernel is launched with more shared memory than a block can have (Triton checks
    its own).
    """
    used, allowed = figures.get("shared_bytes"), target["limits"]["shared_memory_bytes_per_block"]
    if isinstance(used, int) and used > allowed and figures.get("language") in _UNCHECKED:
        name, where = str(figures.get("name"))[:100], target["architecture"]
        reason = f"{name} needs {used} bytes of shared memory; {where} allows {allowed} per block"
        raise Verdict("compile_error", reason)


def _summary(trial: Trial, target: dict[str, Any], compiled: dict[str, Any]) -> str:
    names = set(compiled["kernels"])
    if not names:
        detail = "nothing that the candidate calls is compiled: it launches no kernel of its own"
        trial.flag("no-kernels", "warning", detail)
        return f"no kernel of its own to compile for {target['architecture']}; not run: no such device here"
    kernels = f"{len(names)} kernel{'s' * (len(names) > 1)}"
    count = len(compiled["kernels"])
    many = f" ({count} configurations)" if count > len(names) else ""
    return f"compiled {kernels}{many} for {target['architecture']}; not run: no such device here"
