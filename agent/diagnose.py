"""From an evaluation to a diagnosis: what holds the candidate back, on what evidence, and what to try.

The bound is the roofline model of Williams, Waterman and Patterson (CACM 52(4), 2009): a kernel takes at
least `max(bytes / bandwidth, operations / rate)`. Bytes are the compulsory traffic, inputs, state and outputs
once each; both ceilings are measured on this machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from agent.flops import count_operations
from ingest.diagnose import diagnose_text
from ingest.errors import IngestError

# Above this share of a ceiling, the ceiling is what holds the candidate back.
_NEAR = 0.6
# Below this time, starting threads and crossing from Python into the kernel weigh as much as the work.
_OVERHEAD_MS = 0.05

_ACTIONS = {
    "memory": [
        "fewer-passes: every extra pass over the data costs its full traffic again",
        "fuse-more: intermediate results that stay in registers or cache cost no traffic",
        "nontemporal-stores: a large output need not be read before it is overwritten",
    ],
    "compute": [
        "wider-vectors: use every lane of the vector unit",
        "more-accumulators: independent chains hide the latency of arithmetic",
        "tile-for-cache: reuse operands while they are close",
    ],
    "latency": [
        "more-accumulators: a single dependency chain leaves the units idle",
        "keep-row-resident: work on data while it is in cache",
        "wider-vectors: check that the inner loop is vectorised at all",
    ],
    "overhead": [
        "fuse-more: fewer calls",
        "larger-block: fewer, larger pieces of work",
        "static-schedule: cheaper distribution of the work",
    ],
    "compile_error": ["relax-flags: use only what the compiler of this target accepts"],
    "incorrect": ["safer-numerics: accumulate in higher precision, check masks and boundaries"],
    "timeout": ["larger-block: look for serial loops, locks and work that grows faster than the input"],
    "crash": ["smaller-block: check bounds, strides, contiguity and allocations"],
    "rejected": ["compute the result in the candidate's own kernels"],
}
_FAILURES = {
    "compile_error": "compile_error",
    "incorrect": "incorrect",
    "timeout": "timeout",
    "runtime_error": "crash",
    "rejected": "rejected",
}
_ERROR_LINE = re.compile(r"\b(?:fatal )?error\b\s*:|^\w*(?:Error|Exception)\b\s*:", re.IGNORECASE)


def diagnose_evaluation(
    evaluation: Mapping[str, Any], facts: Mapping[str, Any], ceilings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What an evaluation (JSON) says about its candidate.

    Returns `bottleneck` (memory, compute, latency, overhead, compile_error, incorrect, timeout, crash,
    rejected or unknown), `evidence` and `actions` (lines for people and prompts; an action starts with its
    move), `roofline` ({bytes, operations, achieved_gbs, peak_gbs, fraction, achieved_gflops, peak_gflops,
    compute_fraction, bound_ms}, what is known of it), `error` (normalised, for failures),
    `others` (bottlenecks that are near, too, and can wait) and `missing`.
    `ceilings` are those of `harness.calibrate.cpu_ceilings`: `bandwidth_gb_s` and `fp32_gflop_s`.
    """
    status = str(evaluation.get("status"))
    if status in _FAILURES:
        return _failure(_FAILURES[status], evaluation)
    ms = (evaluation.get("candidate_ms") or {}).get("median")
    if status != "correct" or not ms or not math.isfinite(ms) or not evaluation.get("timed", True):
        return _result("unknown", [f"status {status}, no time that counts"], {}, missing=["candidate_ms"])
    found = _timed(float(ms), evaluation, facts, ceilings or {})
    counters = (evaluation.get("profile") or {}).get("counters")
    return _counted(found, str(counters)) if counters else found


def _counted(found: dict[str, Any], counters: str) -> dict[str, Any]:
    """What hardware counters say of the kernel that takes longest goes before what a roofline suggests."""
    try:
        kernels = diagnose_text(counters)["kernels"]
    except IngestError as error:
        return {**found, "missing": [*found["missing"], f"hardware counters: {error}"]}
    longest = max(kernels, key=lambda k: (k["duration_us"] or 0.0) * k["launches"])
    if longest["bottleneck"] == "unknown":
        return found
    evidence = [f"{longest['name'][:80]}: {line}" for line in longest["evidence"]]
    others = {k["bottleneck"] for k in kernels} - {"unknown", longest["bottleneck"]}
    return {
        **found,
        **({"others": sorted(others)} if others else {}),
        "bottleneck": longest["bottleneck"],
        "evidence": [*evidence, *found["evidence"]],
        "actions": longest["actions"],
        "missing": [*found["missing"], *longest["missing"]],
    }


def _timed(
    ms: float, evaluation: Mapping[str, Any], facts: Mapping[str, Any], ceilings: Mapping[str, Any]
) -> dict[str, Any]:
    bytes_min, operations = int(facts.get("bytes_min") or 0), count_operations(facts)
    peak_gbs, peak_gflops = ceilings.get("bandwidth_gb_s"), ceilings.get("fp32_gflop_s")
    roofline: dict[str, Any] = {"bytes": bytes_min, "operations": operations}
    evidence = [f"{ms:.4g} ms per call"]
    missing = []
    speedup = evaluation.get("speedup")
    if speedup is not None:
        evidence.append(f"{speedup:.2f}x {evaluation.get('baseline', 'eager')}")

    memory = compute = None
    if bytes_min:
        achieved = bytes_min / ms / 1e6
        roofline["achieved_gbs"] = achieved
        if peak_gbs:
            memory = achieved / peak_gbs
            roofline |= {"peak_gbs": peak_gbs, "fraction": memory}
            evidence.append(
                f"compulsory traffic of {bytes_min / 1e6:.1f} MB at {achieved:.1f} GB/s, {memory:.0%} of the "
                f"{peak_gbs:.1f} GB/s that a copy reaches here"
            )
    if operations:
        achieved = operations / ms / 1e6
        roofline["achieved_gflops"] = achieved
        if peak_gflops:
            compute = achieved / peak_gflops
            roofline |= {"peak_gflops": peak_gflops, "compute_fraction": compute}
            evidence.append(
                f"about {operations / 1e6:.1f} M operations at {achieved:.1f} GFLOP/s, {compute:.0%} of the "
                f"{peak_gflops:.0f} GFLOP/s measured here"
            )
    if peak_gbs is None:
        missing.append("memory ceiling")
    if peak_gflops is None:
        missing.append("compute ceiling")
    if memory is None and compute is None:
        return _result("unknown", evidence, roofline, missing=missing)

    roofline["bound_ms"] = ms * max(memory or 0.0, compute or 0.0)
    bottleneck = _bottleneck(ms, memory or 0.0, compute or 0.0)
    shares = {"memory": memory or 0.0, "compute": compute or 0.0}
    others = [name for name, share in shares.items() if share >= _NEAR / 2 and name != bottleneck]
    found = _result(bottleneck, evidence, roofline, missing=missing)
    return {**found, "others": others} if others else found


def roofline_share(diagnosis: Mapping[str, Any]) -> float | None:
    """How near the candidate is to the nearest ceiling of this machine, 1 on it; None where none is known."""
    roofline = diagnosis.get("roofline") or {}
    shares = [roofline.get(key) for key in ("fraction", "compute_fraction")]
    return max((float(share) for share in shares if share is not None), default=None)


def _bottleneck(ms: float, memory: float, compute: float) -> str:
    nearest = max(memory, compute)
    if nearest < _NEAR and ms < _OVERHEAD_MS:
        return "overhead"
    if nearest >= _NEAR:
        return "memory" if memory >= compute else "compute"
    # Far from both ceilings: extra traffic if the memory bound dominates and is within reach, else stalls.
    return "memory" if memory >= _NEAR / 2 and memory >= compute else "latency"


def _failure(kind: str, evaluation: Mapping[str, Any]) -> dict[str, Any]:
    reason, log = str(evaluation.get("reason") or ""), str(evaluation.get("log") or "")
    # The compiler's own words say more than the verdict's summary.
    error = normalise_error(log) if kind in ("compile_error", "crash") and log.strip() else ""
    error = error or normalise_error(reason) or kind
    evidence = [line for line in (reason.strip().splitlines()[:1]) if line]
    numbers = evaluation.get("correctness") or {}
    if kind == "incorrect" and numbers.get("max_abs_err") is not None:
        evidence.append(
            f"largest absolute error {numbers['max_abs_err']:.3g}, relative {numbers.get('max_rel_err')}; "
            f"allowed atol {numbers.get('atol')}, rtol {numbers.get('rtol')}"
        )
    evidence += [str(f.get("detail") or f.get("rule")) for f in evaluation.get("flags") or []][:3]
    if error not in evidence:
        evidence.append(error)
    return {**_result(kind, evidence, {}, missing=[]), "error": error}


def normalise_error(text: str) -> str:
    """The first error line of a log without what differs between runs: paths, positions, addresses."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    line = next((line for line in lines if _ERROR_LINE.search(line)), lines[-1])
    line = re.sub(r"[‘’`\"]", "'", line)
    line = re.sub(r"^\S+?:\d+(?::\d+)?:\s*", "", line)
    line = re.sub(r"(?:/[\w.+-]+){2,}", "FILE", line)
    line = re.sub(r"0x[0-9a-fA-F]+", "ADDRESS", line)
    return line[:300]


def _result(
    bottleneck: str, evidence: list[str], roofline: dict[str, Any], *, missing: list[str]
) -> dict[str, Any]:
    return {
        "bottleneck": bottleneck,
        "evidence": evidence,
        "actions": list(_ACTIONS.get(bottleneck, [])),
        "roofline": roofline,
        "missing": missing,
    }
