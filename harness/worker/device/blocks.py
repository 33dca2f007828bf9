"""Several calls in a row on a device, as a child runs them: cold caches, events around each call.

Reference and candidate run this same loop. What a candidate makes of the events or of the loop gains it
nothing: the judge compares them with its own clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from harness.worker.device.driver import Driver

if TYPE_CHECKING:
    from harness.worker.child import Server

SCRUB_CACHES = 4  # bytes written between two calls, in sizes of the second-level cache


class BlockRunner:
    """Holds what a block of calls needs; made before any foreign code has run in the process."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        size = SCRUB_CACHES * torch.cuda.get_device_properties(0).L2_cache_size
        self.scrub = torch.empty(size, dtype=torch.uint8, device="cuda")
        self.pointer, self.size = self.scrub.data_ptr(), size
        self.events: list[tuple[int, int, int]] = []
        self.stream = torch.cuda.current_stream().cuda_stream
        self.seed = torch.manual_seed

    def run(
        self, server: Server, forward: Callable[..., Any], slots: Sequence[int], scrubs: int, seed: int
    ) -> dict[str, Any]:
        """Milliseconds of each call and of copying its result out, by the device's events, and which results
        were of another kind.

        Before each call the scrub area is written `scrubs` times: nothing of the call before is left in the
        cache, and the device is busy for so long that the next call is launched meanwhile.
        """
        cu, stream, odd = self.driver, self.stream, []
        while len(self.events) < len(slots):
            self.events.append((cu.event(), cu.event(), cu.event()))
        self.seed(seed)
        with torch.no_grad():
            for slot, (start, end, copied_out) in zip(slots, self.events, strict=False):
                for _ in range(scrubs):
                    cu.fill(self.pointer, self.size, stream)
                cu.record(start, stream)
                result = forward(*server.arguments[slot])
                cu.record(end, stream)
                copied = server.copy_out(result, slot)
                cu.record(copied_out, stream)
                if "mismatch" in copied:
                    odd.append(copied["mismatch"])
        cu.synchronize()
        events = self.events[: len(slots)]
        return {
            "calls_ms": [cu.elapsed_ms(start, end) for start, end, _ in events],
            "copies_ms": [cu.elapsed_ms(end, copied_out) for _, end, copied_out in events],
            "mismatches": odd[:1],
        }
