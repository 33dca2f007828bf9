"""Which kernels a candidate's calls run on a device, and how long each takes: torch's profiler (CUPTI) in its
child, sorted by the judge. It is evidence for people and policies; no time of it enters a speedup.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from harness.worker.evidence.kernel_names import kernel_kind

SHOWN = 20  # kernels of a profile, by time


def profile_calls(
    forward: Callable[..., Any], arguments: Sequence[Any], wait: Callable[[], None]
) -> list[Any]:
    """In the child: [name, calls, microseconds in all] of everything the device did in these calls."""
    from torch.profiler import ProfilerActivity, profile

    with torch.no_grad(), profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        for one in arguments:
            forward(*one)
        wait()
    return [
        [event.key, event.count, event.self_device_time_total]
        for event in profiler.key_averages()
        if event.device_type.name == "CUDA"
    ]


def kernel_table(rows: Any, calls: int, own: Collection[str] = ()) -> list[dict[str, Any]]:
    """In the judge: one entry a kernel: its kind, launches and microseconds a call, and share of time."""
    known = [(str(name), int(count), float(us)) for name, count, us in rows]
    total = sum(us for _, _, us in known) or 1.0
    return [
        {
            "name": name[:300],
            "kind": kernel_kind(name, own),
            "launches": count / calls,
            "us": us / calls,
            "share": us / total,
        }
        for name, count, us in sorted(known, key=lambda row: -row[2])
    ]


def own_share(table: Sequence[dict[str, Any]]) -> float | None:
    """Share of the device's time in kernels that are no library's; None where nothing ran."""
    return sum(k["share"] for k in table if k["kind"] == "own") if table else None
