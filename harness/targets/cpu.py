"""This machine's CPU: C++ with OpenMP for speed, Triton under its interpreter for function."""

from __future__ import annotations

import platform
from pathlib import Path

from harness.target import Availability, Target
from harness.worker import environment

_VECTOR_BITS = (("avx512f", 512), ("avx2", 256), ("asimd", 128), ("sse2", 128))


def cpu() -> Target:
    """The target `cpu`, with facts read from the kernel."""
    flags = _flags()
    caches = _caches()
    facts: dict[str, str | float] = {
        "device": environment.cpu_name(),
        "interpreted": "triton",  # of the languages: function only, no times
        "cores": float(environment.usable_cpus()),
        "vector_bits": float(next((bits for flag, bits in _VECTOR_BITS if flag in flags), 64)),
        "instruction_sets": " ".join(
            f for f in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "sve") if f in flags
        ),
        **{f"{name}_kib": float(size >> 10) for name, size in caches.items()},
    }
    limits = {
        "threads": environment.usable_cpus(),
        **{f"{name}_bytes": size for name, size in caches.items()},
    }
    return Target("cpu", "generic", platform.machine(), ("cpp", "triton"), limits, facts, "cpu", _available)


def _available() -> Availability:
    return True, ""


def _flags() -> set[str]:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return set(line.partition(":")[2].split())
    except OSError:
        pass
    return set()


def _caches() -> dict[str, int]:
    """Size in bytes of each data cache level of the first CPU."""
    sizes: dict[str, int] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind, level, size = ((index / n).read_text().strip() for n in ("type", "level", "size"))
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K"):
            sizes[f"l{level}"] = int(size[:-1]) << 10
    return sizes
