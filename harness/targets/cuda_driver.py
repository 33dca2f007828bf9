"""Which CUDA devices this machine has, asked of the driver itself: torch is not imported for it."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

from harness.target import Availability

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, …_MINOR
_NAME_BYTES = 256


class DriverMissing(Exception):
    """There is no usable CUDA driver; the text is one line for a person."""


@dataclass(frozen=True)
class Device:
    name: str
    capability: tuple[int, int]


def has_device(capability: tuple[int, int]) -> Availability:
    """Whether a device of exactly this compute capability is visible, and torch can use it."""
    try:
        found = devices()
    except DriverMissing as error:
        return False, str(error)
    if capability not in {device.capability for device in found}:
        wanted = "{}.{}".format(*capability)
        names = ", ".join(f"{d.name} ({d.capability[0]}.{d.capability[1]})" for d in found) or "none"
        return False, f"no device of compute capability {wanted} (CUDA devices here: {names})"
    if torch_cuda() is None:
        return False, "the installed torch is not built for CUDA"
    return True, ""


def cuda_names() -> list[str]:
    """Names of the visible devices, the first one first; empty where there is no driver."""
    try:
        return list(dict.fromkeys(device.name for device in devices()))
    except DriverMissing:
        return []


@functools.cache
def devices() -> tuple[Device, ...]:
    """The devices that CUDA_VISIBLE_DEVICES leaves visible. No context is created. Raises DriverMissing."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DriverMissing("no CUDA driver (libcuda.so.1) on this machine") from error
    status = cuda.cuInit(0)
    count = ctypes.c_int()
    if status or cuda.cuDeviceGetCount(ctypes.byref(count)):
        raise DriverMissing(f"the CUDA driver does not start (error {status}); see nvidia-smi")
    return tuple(_device(cuda, ordinal) for ordinal in range(count.value))


def visible_names(capability: tuple[int, int]) -> list[str]:
    """What CUDA_VISIBLE_DEVICES calls the visible devices of a compute capability. Raises DriverMissing."""
    found = devices()
    chosen = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    names = chosen or [str(number) for number in range(len(found))]
    return [name for name, device in zip(names, found, strict=False) if device.capability == capability]


def _device(cuda: ctypes.CDLL, ordinal: int) -> Device:
    name = ctypes.create_string_buffer(_NAME_BYTES)
    cuda.cuDeviceGetName(name, _NAME_BYTES, ordinal)
    major, minor = ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, ordinal)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, ordinal)
    return Device(name.value.decode(errors="replace"), (major.value, minor.value))


def torch_cuda() -> str | None:
    """The CUDA version that the installed torch was built for; None for another build or none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^cuda\b[^=]*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return found[1] if found else None
