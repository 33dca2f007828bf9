"""The CUDA driver through ctypes: device memory that two processes share, and what a clock needs.

Memory is created by the judge and handed over as a file descriptor (virtual memory management API), so that
it works across PID namespaces, where CUDA's older IPC handles do not. All functions are looked up once, when
the driver is opened: a candidate that replaces attributes of torch changes nothing here.
Source: CUDA Driver API, sections "Virtual Memory Management", "Event Management" and "Memory Management".
"""

from __future__ import annotations

import ctypes
import functools
import os
import time
from pathlib import Path
from typing import Any

import torch

LIBRARY = "libcuda.so.1"
_POSIX_FD, _PINNED, _DEVICE, _READ_WRITE = 1, 1, 1, 3
_MINIMUM_GRANULARITY = 0
_POINTER, _SIZE, _INT, _UINT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint
_U64, _FLOAT = ctypes.c_uint64, ctypes.c_float
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuGetErrorString": (_INT, _POINTER),
    "cuMemGetAllocationGranularity": (_POINTER, _POINTER, _INT),
    "cuMemCreate": (_POINTER, _SIZE, _POINTER, _U64),
    "cuMemExportToShareableHandle": (_POINTER, _U64, _INT, _U64),
    "cuMemImportFromShareableHandle": (_POINTER, _POINTER, _INT),
    "cuMemAddressReserve": (_POINTER, _SIZE, _SIZE, _U64, _U64),
    "cuMemMap": (_U64, _SIZE, _SIZE, _U64, _U64),
    "cuMemSetAccess": (_U64, _SIZE, _POINTER, _SIZE),
    "cuMemUnmap": (_U64, _SIZE),
    "cuMemRelease": (_U64,),
    "cuMemAddressFree": (_U64, _SIZE),
    "cuMemsetD32Async": (_U64, _UINT, _SIZE, _POINTER),
    "cuCtxSynchronize": (),
    "cuEventCreate": (_POINTER, _UINT),
    "cuEventRecord": (_POINTER, _POINTER),
    "cuDriverGetVersion": (_POINTER,),
    "cuEventElapsedTime": (_POINTER, _POINTER, _POINTER),
}


class DeviceError(RuntimeError):
    """The driver refused a call; the text names the call and the driver's reason."""


class _Location(ctypes.Structure):
    _fields_ = (("type", _INT), ("id", _INT))


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", _INT),
        ("handle_types", _INT),
        ("location", _Location),
        ("win32", _POINTER),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", _Location), ("flags", _INT))


class Driver:
    """Typed calls that raise DeviceError. torch must have created its context in this process."""

    def __init__(self) -> None:
        library = ctypes.CDLL(LIBRARY)
        self._functions: dict[str, Any] = {}
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = _INT, arguments
            self._functions[name] = function

    def call(self, name: str, *arguments: Any) -> None:
        code = self._functions[name](*arguments)
        if code:
            raise DeviceError(f"{name}: {self._reason(code)}")

    def _reason(self, code: int) -> str:
        text = ctypes.c_char_p()
        self._functions["cuGetErrorString"](code, ctypes.byref(text))
        return text.value.decode() if text.value else f"error {code}"

    def synchronize(self) -> None:
        """Waits for everything this process has started on the device, on any stream."""
        self.call("cuCtxSynchronize")

    def event(self) -> int:
        handle = _POINTER()
        self.call("cuEventCreate", ctypes.byref(handle), 0)
        assert handle.value is not None
        return handle.value

    def record(self, event: int, stream: int) -> None:
        self.call("cuEventRecord", event, stream)

    def elapsed_ms(self, start: int, end: int) -> float:
        """Milliseconds between two recorded and completed events."""
        value = _FLOAT()
        self.call("cuEventElapsedTime", ctypes.byref(value), start, end)
        return value.value

    def fill(self, pointer: int, size: int, stream: int) -> None:
        """Writes zeros to `size` bytes (a multiple of 4), in the order of a stream."""
        self.call("cuMemsetD32Async", pointer, 0, size // 4, stream)


@functools.cache
def driver() -> Driver:
    """This process's driver. Raises OSError where there is none."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    torch.cuda.current_stream()
    return Driver()


def start() -> None:
    """Creates torch's context on the device, which takes a few tenths of a second."""
    torch.zeros(1, device="cuda")
    driver().synchronize()


def create_memory(size: int) -> tuple[int, int]:
    """New device memory of at least `size` bytes: a file descriptor that stands for it, and its true size.

    Raises DeviceError, when the device is full for example.
    """
    cu = driver()
    properties = _properties()
    size = _rounded(cu, properties, size)
    handle = _U64()
    cu.call("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(properties), 0)
    fd = _INT(-1)
    try:
        cu.call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, _POSIX_FD, 0)
    finally:
        cu.call("cuMemRelease", handle)  # the descriptor keeps the memory alive
    os.set_inheritable(fd.value, False)
    return fd.value, size


def map_memory(fd: int, size: int) -> torch.Tensor:
    """The memory behind a descriptor as bytes on this process's device, mapped until the process ends."""
    cu = driver()
    handle, address = _U64(), _U64()
    cu.call("cuMemImportFromShareableHandle", ctypes.byref(handle), fd, _POSIX_FD)
    try:
        cu.call("cuMemAddressReserve", ctypes.byref(address), size, 0, 0, 0)
        cu.call("cuMemMap", address, size, 0, handle, 0)
    finally:
        cu.call("cuMemRelease", handle)  # the mapping keeps it
    access = _Access(_Location(_DEVICE, _ordinal()), _READ_WRITE)
    cu.call("cuMemSetAccess", address, size, ctypes.byref(access), 1)
    device = torch.device("cuda", _ordinal())
    storage = torch._C._construct_storage_from_data_pointer(address.value, device, size)
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage, 0, (size,), (1,))


def name() -> str:
    """The device's own name, such as NVIDIA H200."""
    return str(torch.cuda.get_device_name())


def facts() -> dict[str, str]:
    """Driver and runtime, for an evaluation."""
    version = _INT()
    driver().call("cuDriverGetVersion", ctypes.byref(version))
    found = {"cuda_driver": f"{version.value // 1000}.{version.value % 1000 // 10}"}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    try:
        found["driver"] = Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        found["driver"] = "unknown"
    return found


def copy_rate(size: int = 1 << 30) -> float:
    """Bytes per second, read plus written, of the best of several large copies on this device."""
    cu = driver()
    stream = torch.cuda.current_stream().cuda_stream
    source = torch.empty(size, dtype=torch.uint8, device="cuda").random_(0, 255)
    target = torch.empty_like(source)
    start, end = cu.event(), cu.event()
    best = 0.0
    for _ in range(8):
        cu.record(start, stream)
        target.copy_(source)
        cu.record(end, stream)
        cu.synchronize()
        best = max(best, 2e3 * size / cu.elapsed_ms(start, end))
    return best


def matrix_rate(kind: str, size: int = 0, dtype: torch.dtype | None = None) -> float:
    """Operations per second (2 n^3 / t) of the best of several products of random matrices.

    By default in bfloat16 on a device, the fastest that most have, and in float32 on a CPU.
    """
    size = size or (1024 if kind == "cpu" else 8192)
    dtype = dtype or (torch.float32 if kind == "cpu" else torch.bfloat16)
    a, b = (torch.randn(size, size, device=kind).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    times = []
    for _ in range(6):
        wait(kind)
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        wait(kind)
        times.append(time.perf_counter() - start)
    return 2 * size**3 / min(times)


def wait(kind: str) -> None:
    """Until this process's work on the device is done."""
    if kind != "cpu":
        driver().synchronize()


def cache_bytes() -> int:
    """Size of the second-level cache."""
    return int(torch.cuda.get_device_properties(0).L2_cache_size)


def free_bytes() -> int:
    """What is left of the device's memory."""
    return int(torch.cuda.mem_get_info()[0])


def _ordinal() -> int:
    return torch.cuda.current_device()


def _properties() -> _Properties:
    return _Properties(_PINNED, _POSIX_FD, _Location(_DEVICE, _ordinal()), None, (ctypes.c_ubyte * 8)())


def _rounded(cu: Driver, properties: _Properties, size: int) -> int:
    step = _SIZE()
    cu.call(
        "cuMemGetAllocationGranularity", ctypes.byref(step), ctypes.byref(properties), _MINIMUM_GRANULARITY
    )
    return -(-size // step.value) * step.value
