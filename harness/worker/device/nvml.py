"""What the management library says about a GPU while it is measured: clocks, throttling, other processes.

Source: NVML API reference, device queries. Everything is optional: where the library or a query is missing,
`note` says so.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch

LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK = 1
_PROCESSES = 64
# Reasons for clocks below what was asked for. Idle clocks and application settings are none of ours.
REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
CLOCK_SHARE = 0.93  # a clock below this share of the highest one seen has changed


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


@dataclass(frozen=True)
class Disturbance:
    """One thing that makes a measurement doubtful, as a flag; `passing`: measuring again may help."""

    rule: str
    detail: str
    passing: bool = True


class DeviceWatch:
    """Samples one device between blocks of calls; `expected` is how many processes of ours use it."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.note = ""
        self.clocks: list[int] = []
        self.reasons = 0
        self.strangers = 0
        self._library: Any = None
        try:
            library = ctypes.CDLL(LIBRARY)
            self._device = ctypes.c_void_p()
            uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}".encode()
            failed = library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(
                uuid, ctypes.byref(self._device)
            )
        except (OSError, AttributeError) as error:
            self.note = f"clocks and other users are not watched: {error}"
            return
        if failed:
            self.note = f"clocks and other users are not watched: NVML error {failed}"
        else:
            self._library = library

    def sample(self) -> None:
        """To be called while the device is warm, between two blocks."""
        if self._library is None:
            return
        clock, reasons = ctypes.c_uint(), ctypes.c_ulonglong()
        if not self._library.nvmlDeviceGetClockInfo(self._device, _SM_CLOCK, ctypes.byref(clock)):
            self.clocks.append(clock.value)
        if not self._library.nvmlDeviceGetCurrentClocksThrottleReasons(self._device, ctypes.byref(reasons)):
            self.reasons |= reasons.value
        count, found = ctypes.c_uint(_PROCESSES), (_Process * _PROCESSES)()
        if not self._library.nvmlDeviceGetComputeRunningProcesses_v3(
            self._device, ctypes.byref(count), found
        ):
            self.strangers = max(self.strangers, count.value - self.expected)

    def disturbances(self) -> list[Disturbance]:
        """What went on besides the measurement."""
        found = []
        if self.strangers > 0:
            detail = f"{self.strangers} other process(es) used the device while it was measured"
            found.append(Disturbance("device-shared", detail))
        slowed = [name for bit, name in REASONS.items() if self.reasons & bit]
        if self.clocks and min(self.clocks) < CLOCK_SHARE * max(self.clocks):
            why = f" ({', '.join(slowed)})" if slowed else ""
            detail = f"the clock moved between {min(self.clocks)} and {max(self.clocks)} MHz{why}"
            found.append(Disturbance("clock-changed", detail))
        elif slowed:
            # Full load reaches the power cap by itself: that is the device as it is.
            detail = f"the device was held back: {', '.join(slowed)}"
            found.append(Disturbance("clock-limited", detail, passing=slowed != ["power cap"]))
        return found
