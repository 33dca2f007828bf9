"""Several calls in a row on a device, as a child runs them: cold caches, events around each call.

Reference and candidate run this same loop. What a candidate makes of the events or of the loop gains it
nothing: the judge compares them with its own clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from harness.worker.device import driver

if TYPE_CHECKING:
    from harness.worker.child import Server

# What is written between two calls, in sizes of the second-level cache: nothing of the call before is left
# there, and the device is busy for so long that the next call is launched meanwhile.
SCRUB_CACHES = 4
_scrub: list[torch.Tensor] = []
_events: list[tuple[int, int]] = []


def run_block(server: Server, forward: Callable[..., Any], slots: Sequence[int], seed: int) -> dict[str, Any]:
    """Milliseconds of each call by the device's events, and which results were of another kind."""
    cu = driver()
    if not _scrub:
        size = SCRUB_CACHES * torch.cuda.get_device_properties(0).L2_cache_size
        _scrub.append(torch.empty(size, dtype=torch.uint8, device=server.device))
    while len(_events) < len(slots):
        _events.append((cu.event(), cu.event()))
    pointer, size = _scrub[0].data_ptr(), _scrub[0].numel()
    stream = torch.cuda.current_stream().cuda_stream
    odd: list[str] = []
    torch.manual_seed(seed)
    with torch.no_grad():
        for slot, (start, end) in zip(slots, _events, strict=False):
            cu.fill(pointer, size, stream)
            cu.record(start, stream)
            result = forward(*server.arguments[slot])
            cu.record(end, stream)
            copied = server.copy_out(result, slot)
            if "mismatch" in copied:
                odd.append(copied["mismatch"])
    cu.synchronize()
    times = [cu.elapsed_ms(*pair) for pair, _ in zip(_events, slots, strict=False)]
    return {"events_ms": times, "mismatches": odd[:1]}
