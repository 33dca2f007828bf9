"""Rule-based reading of a profiler's output: what bounds each kernel, on what evidence, and what to try.

The thresholds follow the profiler's own guidance: from 60 % of its peak a unit is highly utilised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median_low
from typing import Any

from ingest.errors import Unsupported
from ingest.reading import decode, read_bytes
from ingest.traces import ncu
from ingest.traces.ncu import Launch

HIGH = 60.0
_MAX_TRACE_BYTES = 1 << 30
_HEAD_BYTES = 1 << 18  # all that formats are recognised by, in any encoding
_WANTED = (
    "duration_us", "memory_pct", "compute_pct", "dram_pct", "occupancy_pct", "registers_per_thread",
    "spilling_requests_pct", "waves_per_sm", "load_bytes_per_sector",
)  # fmt: skip
_STALL_MEANING = {
    "long_scoreboard": "waiting for global or local memory",
    "short_scoreboard": "waiting for shared memory or special functions",
    "barrier": "waiting at a block barrier",
    "membar": "waiting for a memory barrier",
    "lg_throttle": "the queue of global memory instructions is full",
    "mio_throttle": "the queue of shared memory and special function instructions is full",
    "math_pipe_throttle": "the arithmetic pipe is busy",
    "no_instruction": "waiting for the instruction cache",
    "drain": "waiting for stores to leave at the end",
    "wait": "fixed latency between dependent instructions",
}
_UNSUPPORTED = (
    ('"traceEvents"', "PyTorch profiler (Kineto) trace"),
    ('"hatchet', "Proton (hatchet) profile"),
    ("Dispatch_Id", "rocprofv3 CSV"),
    ("Dispatch_ID", "rocprof-compute counter file"),
    ('"Agent_Id"', "rocprofv3 CSV"),
    ("HIP_RUNTIME_API", "rocprofv3 CSV"),
    ("HSA_CORE_API", "rocprofv3 CSV"),
)


def diagnose_file(path: str | Path, ceilings: Mapping[str, float] | None = None) -> dict[str, Any]:
    """The Diagnose record of a trace: `format`, `kernels`, `errors`.

    `ceilings` may give the device's `dram_gb_per_s`, for traces that record bytes but no share of the peak.
    Raises Unreadable (a file that cannot be read) or Unsupported (a format without a parser).
    """
    path = Path(path)
    # A large file of another kind need not be read and decoded to be refused.
    _check_format(decode(read_bytes(path, _MAX_TRACE_BYTES, _HEAD_BYTES), path)[0])
    text, _ = decode(read_bytes(path, _MAX_TRACE_BYTES), path)
    return diagnose_text(text, ceilings)


def diagnose_text(text: str, ceilings: Mapping[str, float] | None = None) -> dict[str, Any]:
    """As `diagnose_file`, for a text already read."""
    _check_format(text)
    launches, errors = ncu.parse(text)
    return {
        "format": ncu.FORMAT,
        "kernels": [_kernel(group, ceilings or {}) for group in _grouped(launches)],
        "errors": errors,
    }


def _check_format(text: str) -> None:
    if not ncu.sniff(text):
        other = unsupported_format(text)
        what = f"unsupported profiler format: {other}" if other else "not a profiler's output that is known"
        raise Unsupported(what, "supported: Nsight Compute CSV (ncu --csv --page raw)")


def unsupported_format(text: str) -> str | None:
    """The name of a profiler format that is recognised but has no parser yet."""
    head = text[:4096]
    if head.lstrip().startswith("[") and '"frame"' in head and '"metrics"' in head:
        return "Proton (hatchet) profile"
    return next((name for mark, name in _UNSUPPORTED if mark in head), None)


def _grouped(launches: list[Launch]) -> list[list[Launch]]:
    """Launches of the same kernel and shape together, in order of first appearance."""
    groups: dict[tuple[str, str, str], list[Launch]] = defaultdict(list)
    for launch in launches:
        groups[(launch.name, launch.grid, launch.block)].append(launch)
    return list(groups.values())


def _kernel(group: list[Launch], ceilings: Mapping[str, float]) -> dict[str, Any]:
    """The record of one kernel, read from its launch of median duration."""
    durations = [launch.metrics.get("duration_us", 0.0) for launch in group]
    launch = group[durations.index(median_low(durations))]
    metrics = dict(launch.metrics)
    if "dram_gb_per_s" not in metrics and {"dram_mb", "duration_us"} <= metrics.keys():
        metrics["dram_gb_per_s"] = metrics["dram_mb"] / metrics["duration_us"] * 1e3
    peak = ceilings.get("dram_gb_per_s")
    if "memory_pct" not in metrics and peak and "dram_gb_per_s" in metrics:
        metrics["memory_pct"] = 100 * metrics["dram_gb_per_s"] / peak
    bottleneck, evidence, actions = _rules(metrics, launch.stalls)
    if launch.stalls:
        metrics |= {f"stall_{name}": value for name, value in sorted(launch.stalls.items())}
    return {
        "name": launch.name,
        "duration_us": metrics.get("duration_us"),
        "bottleneck": bottleneck,
        "evidence": evidence,
        "actions": actions,
        "metrics": {k: round(v, 4) for k, v in metrics.items()},
        "missing": [name for name in _WANTED if name not in metrics],
        "launches": len(group),
        "grid": launch.grid,
        "block": launch.block,
        "target": target_of(launch.capability),
        "lines": [launch.first_line, launch.last_line],
    }


def target_of(capability: str) -> str:
    """`9.0` -> `nvidia:sm_90`."""
    digits = capability.replace(".", "")
    return f"nvidia:sm_{digits}" if digits.isdigit() else "nvidia"


def _rules(m: Mapping[str, float], stalls: Mapping[str, float]) -> tuple[str, list[str], list[str]]:
    """Bottleneck, evidence and actions. What hides the others comes first: spilling, then an idle device."""
    memory, compute = m.get("memory_pct"), m.get("compute_pct")
    evidence = _utilisation(m)
    actions: list[str] = []
    uncoalesced = _uncoalesced(m, evidence, actions)
    if m.get("spilling_requests_pct", 0.0) >= 10.0:
        evidence.insert(0, f"{m['spilling_requests_pct']:.0f} % of local memory requests are register spills")
        if "registers_per_thread" in m:
            evidence.append(f"{m['registers_per_thread']:.0f} registers per thread")
        actions[:0] = [
            "smaller-block: give each thread fewer elements, or spread a block over more warps",
            "two-pass-algorithm: do not hold a whole row in registers",
        ]
        return "spill", evidence, actions
    if _too_small(m):
        blocks, sms = m.get("blocks"), m.get("multiprocessors")
        if blocks is not None and sms is not None:
            evidence.insert(0, f"{blocks:.0f} blocks for {sms:.0f} multiprocessors")
        actions.append("fuse-more: the launch costs more than the work; do more per launch")
        return "overhead", evidence, actions
    if memory is not None and memory >= HIGH and memory >= (compute or 0.0):
        actions += (
            [] if uncoalesced else ["fewer-passes: read and write every byte once; fuse with neighbours"]
        )
        actions.append("wider-vectors: load 16 bytes per thread and instruction")
        return "memory", evidence, actions
    if compute is not None and compute >= HIGH:
        _compute(m, evidence, actions)
        return "compute", evidence, actions
    if memory is None or compute is None:
        evidence += _stall_lines(stalls)
        return "unknown", evidence, ["profile again with `ncu --set full --page raw --csv`"]
    evidence += _stall_lines(stalls)
    _latency(m, stalls, evidence, actions)
    return "latency", evidence, actions


def _utilisation(m: Mapping[str, float]) -> list[str]:
    lines = []
    for key, what in (
        ("memory_pct", "memory system"),
        ("dram_pct", "DRAM"),
        ("compute_pct", "multiprocessors"),
    ):
        if key in m:
            lines.append(f"{what} at {m[key]:.1f} % of peak")
    if "dram_gb_per_s" in m:
        lines.append(f"DRAM traffic {m['dram_gb_per_s']:.0f} GB/s")
    return lines


def _uncoalesced(m: Mapping[str, float], evidence: list[str], actions: list[str]) -> bool:
    used = m.get("load_bytes_per_sector", 32.0)
    if not 0.0 < used <= 16.0:
        return False
    evidence.append(f"global loads use {used:.0f} of 32 bytes of each sector: the access is not coalesced")
    actions.append("let neighbouring threads load neighbouring addresses; stage a transpose in shared memory")
    return True


def _too_small(m: Mapping[str, float]) -> bool:
    """A grid that leaves most multiprocessors idle for a few microseconds."""
    few = m.get("waves_per_sm", 1.0) < 0.25
    if {"blocks", "multiprocessors"} <= m.keys():
        few = few or m["blocks"] < m["multiprocessors"] / 4
    return few and m.get("duration_us", 0.0) < 10.0


def _compute(m: Mapping[str, float], evidence: list[str], actions: list[str]) -> None:
    if m.get("issue_pct", 0.0) >= 80.0:
        evidence.append(f"an instruction is issued in {m['issue_pct']:.0f} % of the cycles")
        actions.append(
            "fewer instructions: cheaper functions where the tolerance allows, invariant work hoisted"
        )
        actions.append("own-gemm: a product belongs on the tensor cores")
    elif m.get("tensor_pct", 0.0) >= 50.0:
        evidence.append(f"tensor cores active {m['tensor_pct']:.0f} % of the time")
    actions.append("larger-block: more reuse per byte and fewer instructions per result")


def _latency(
    m: Mapping[str, float], stalls: Mapping[str, float], evidence: list[str], actions: list[str]
) -> None:
    if "occupancy_pct" in m:
        evidence.append(f"achieved occupancy {m['occupancy_pct']:.0f} %")
    if stalls.get("membar", 0.0) + stalls.get("lg_throttle", 0.0) > 0.25 * sum(stalls.values()):
        evidence.append("memory barriers and a full memory queue dominate: contended atomics look like this")
        actions.append("online-algorithm: reduce inside the block first, then one atomic per block")
    if m.get("occupancy_pct", 100.0) < 40.0:
        actions.append(
            "smaller-block: raise occupancy by using fewer registers or less shared memory per block"
        )
    actions.append("prefetch: have more independent loads in flight per thread")


def _stall_lines(stalls: Mapping[str, float]) -> list[str]:
    """The two largest reasons for which warps do not issue."""
    total = sum(stalls.values())
    largest = sorted(stalls.items(), key=lambda item: (-item[1], item[0]))[:2]
    return [
        f"warps stall on {name} {value:.1f} cycles per instruction ({100 * value / total:.0f} % of stalls)"
        + (f": {_STALL_MEANING[name]}" if name in _STALL_MEANING else "")
        for name, value in largest
        if value >= 1.0
    ]
