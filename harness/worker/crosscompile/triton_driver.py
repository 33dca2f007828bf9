"""A driver for Triton whose device is not here: everything is compiled, limits are checked, nothing is
launched.
"""

# ruff: noqa: ARG002  (these signatures are Triton's)

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from harness.worker.crosscompile.device import on_device

LAUNCHER_ARGUMENTS = (
    9  # grid (3), stream, function, packed metadata, launch metadata, two hooks; then the kernel's
)
EXAMPLES = 8


class Launches:
    """What was launched, and what was not. `deadline` (of time.monotonic): from then on, further
    configurations of an autotuner are left out once one of them has compiled.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.grids: dict[str, list[int]] = {}  # by the hash of the compiled kernel
        self.count = 0
        self.failed: list[str] = []  # configurations that an autotuner tried in vain
        self.left_out = 0


class AbsentDriver:
    """What Triton asks of a driver. `target`: what `Target.plain` gives."""

    def __init__(self, target: dict[str, Any], launches: Launches) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget(*target["triton"])
        self._launches = launches
        self._limits = target["limits"]
        self.utils = _Utilities(target)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0, device="cuda")

    def clear_cache(self, cache: Any) -> None:
        pass

    def get_benchmarker(self) -> Callable[..., Any]:
        return self.benchmark

    def benchmark(self, call: Callable[[], Any], *_: Any, quantiles: Any = None, **__: Any) -> Any:
        """Stands in for a measurement: one call, and equal times for everybody."""
        launches = self._launches
        if launches.count and time.monotonic() > launches.deadline:
            launches.left_out += 1
            took = math.inf
        else:
            try:
                call()
            except Exception as error:
                if len(launches.failed) < EXAMPLES:
                    launches.failed.append(" ".join(str(error).split())[:200])
                raise
            took = 1.0
        return [took] * len(quantiles) if quantiles else took

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        """What a compiled kernel is launched with."""

        def launch(x: int, y: int, z: int, *rest: Any) -> None:
            grid = [int(x), int(y), int(z)]
            limits = [self._limits["grid_x"], *[self._limits["grid_yz"]] * 2]
            if any(n > most for n, most in zip(grid, limits, strict=True)):
                raise RuntimeError(f"a grid of {grid} exceeds the device's limits of {limits}")
            for i, value in enumerate(rest[LAUNCHER_ARGUMENTS - 3 :]):
                if isinstance(value, torch.Tensor) and not on_device(value):
                    raise ValueError(
                        f"Pointer argument (at {i}) cannot be accessed from Triton (cpu tensor?)"
                    )
            self._launches.count += 1
            self._launches.grids[metadata.hash] = grid

        return launch


class _Utilities:
    def __init__(self, target: dict[str, Any]) -> None:
        limits, facts = target["limits"], target["facts"]
        self._threads = limits["threads_per_block"]
        self._properties = {
            "max_shared_mem": limits["shared_memory_bytes_per_block"],
            "max_num_regs": limits.get("registers_per_sm", limits["registers_per_thread"] * 1024),
            "multiprocessor_count": int(facts.get("multiprocessors", 1)),
            "warpSize": limits["warp_size"],
            "sm_clock_rate": 1_000_000,
            "mem_clock_rate": 1_000_000,
            "mem_bus_width": 4096,
            "arch": target["architecture"],
        }

    def get_device_properties(self, device: int) -> dict[str, Any]:
        return self._properties

    def load_binary(
        self, name: str, binary: bytes, shared: int, device: int
    ) -> tuple[int, int, int, int, int]:
        """Module, function, registers, spills and most threads per block."""
        from harness.worker.profiling.static import registers_of

        return 0, 0, registers_of(binary), 0, self._threads


def install(target: dict[str, Any], launches: Launches) -> None:
    """Makes Triton in this process compile for the target."""
    import triton.testing
    from triton.runtime import driver

    absent = AbsentDriver(target, launches)
    driver.set_active(absent)
    triton.testing.do_bench = absent.benchmark
    triton.testing.do_bench_cudagraph = absent.benchmark
