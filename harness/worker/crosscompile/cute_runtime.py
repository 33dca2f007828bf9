"""The part of CUDA's runtime that compiled functions of the CuTe DSL call, for a device that is not here.

Their host code runs for real: it computes grids, blocks and sizes of shared memory, and "launches". Symbols
and their arguments are those of libcute_dsl_runtime, which forwards them to functions of CUDA's runtime API
of the same name.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_MAX_SHARED, _MULTIPROCESSORS = 97, 16  # cudaDevAttrMaxSharedMemoryPerBlockOptin, …MultiProcessorCount
_INT, _POINTER, _SIZE = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t


class _Configuration(ctypes.Structure):
    """The start of cudaLaunchConfig_t."""

    _fields_ = (("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", _SIZE))


@dataclass(frozen=True)
class Launch:
    """One launch that was asked for: `grid` in blocks, `block` in threads."""

    kernel: str
    grid: list[int]
    block: list[int]
    shared_bytes: int  # dynamic


class AbsentRuntime:
    """Notes launches. `problem` says what a device would refuse of the last ones; empty otherwise."""

    def __init__(self, target: dict[str, Any]) -> None:
        limits, facts = target["limits"], target["facts"]
        self.launches: list[Launch] = []
        self.problem = ""
        self._limits = limits
        self._names: list[str] = []
        self._answers = {
            _MAX_SHARED: limits["shared_memory_bytes_per_block"],
            _MULTIPROCESSORS: int(facts.get("multiprocessors", 1)),
        }
        self._symbols = {
            "_cudaLibraryLoadData": _function(lambda library, *_: _store(library, _POINTER(1)), _POINTER),
            "_cudaLibraryGetKernel": _function(self._kernel, _POINTER, _POINTER, ctypes.c_char_p),
            "_cudaGetDevice": _function(lambda device: _store(device, _INT(0)), _POINTER),
            "_cudaDeviceGetAttribute": _function(self._attribute, _POINTER, _INT, _INT),
            "_cuKernelGetAttribute": _function(lambda value, *_: _store(value, _INT(0)), _POINTER, _INT),
            "_cudaLaunchKernelEx": _function(self._launch, _POINTER, _POINTER),
            "_cudaLaunchKernel": _function(self._launch_plain, _POINTER, *[_INT] * 6, _POINTER, _SIZE),
            **{
                name: _function(lambda: None)
                for name in (
                    "_cudaFuncSetAttribute",
                    "_cudaKernelSetAttributeForDevice",
                    "_cuTensorMapEncodeTiled",
                )
            },
        }

    def offer_to(self, engine: Any) -> None:
        """Has the code of one execution engine call this runtime."""
        for name, function in self._symbols.items():
            engine.raw_register_runtime(name, ctypes.cast(function, _POINTER))

    def _kernel(self, handle: int, _library: int, name: bytes) -> None:
        self._names.append(name.decode())
        _store(handle, _POINTER(len(self._names)))

    def _attribute(self, value: int, which: int, _device: int) -> None:
        _store(value, _INT(self._answers.get(which, 0)))

    def _launch(self, configuration: int, kernel: int) -> None:
        chosen = _Configuration.from_address(configuration)
        self._note(kernel, list(chosen.grid), list(chosen.block), chosen.shared)

    def _launch_plain(self, kernel: int, *sizes: int) -> None:
        self._note(kernel, list(sizes[:3]), list(sizes[3:6]), sizes[7])

    def _note(self, kernel: int, grid: list[int], block: list[int], shared: int) -> None:
        name, limits = self._names[kernel - 1], self._limits
        most = [limits["grid_x"], *[limits["grid_yz"]] * 2]
        if not all(0 < n <= m for n, m in zip(grid, most, strict=True)):
            self.problem = f"a grid of {grid} exceeds the device's limits of {most}"
        elif not 0 < block[0] * block[1] * block[2] <= limits["threads_per_block"]:
            self.problem = (
                f"a block of {block} exceeds the device's limit of {limits['threads_per_block']} threads"
            )
        self.launches.append(Launch(name, grid, block, shared))


def _store(address: int, value: Any) -> None:
    ctypes.memmove(address, ctypes.addressof(value), ctypes.sizeof(value))


def _function(answer: Callable[..., None], *arguments: Any) -> Any:
    """A function for C that succeeds; of more arguments than it declares it sees the first ones."""

    def call(*given: Any) -> int:
        answer(*given)
        return 0

    return ctypes.CFUNCTYPE(_INT, *arguments)(call)
