"""AMD Instinct GPUs: compiled for, not yet run on."""

from __future__ import annotations

from pathlib import Path

from harness.target import Availability, Target
from harness.targets import toolchain

# ROCm documentation, "Accelerator and GPU hardware specifications" (vector registers: 512 KiB per compute
# unit = 512 registers of 64 lanes of 4 bytes on each of 4 SIMDs); LLVM "User Guide for AMDGPU Backend" (512
# registers per thread, shared with the accumulators, given out in steps of 8; workgroups of at most 1024);
# "AMD Instinct MI200/MI300 instruction set architecture" (at most 8 waves per SIMD).
_COMMON = {
    "registers_per_simd_lane": 512,
    "registers_per_thread": 512,
    "register_granularity": 8,
    "simds_per_cu": 4,
    "waves_per_simd": 8,
    "threads_per_block": 1024,
    "warp_size": 64,
    "grid_x": 2**31 - 1,
    "grid_yz": 65_535,
}
# Local data share: the same table. It belongs to a compute unit, and one workgroup may take all of it.
_LDS = {"gfx90a": 64 << 10, "gfx942": 64 << 10, "gfx950": 160 << 10}
# The same table; memory: data sheets of MI250X (one of its two dies), MI300X and MI355X.
_FACTS: dict[str, dict[str, str | float]] = {
    "gfx90a": {
        "device": "MI250X, one die (CDNA 2)",
        "multiprocessors": 110.0,
        "l2_mib": 8.0,
        "memory_gb": 64.0,
        "memory_gb_s": 1638.0,
        "tensor_cores": "mfma: bf16, fp16, fp64, int8",
    },
    "gfx942": {
        "device": "MI300X (CDNA 3)",
        "multiprocessors": 304.0,
        "l2_mib": 32.0,
        "memory_gb": 192.0,
        "memory_gb_s": 5300.0,
        "tensor_cores": "mfma: bf16, fp16, tf32, fp64, fp8, int8",
    },
    "gfx950": {
        "device": "MI355X (CDNA 4)",
        "multiprocessors": 256.0,
        "l2_mib": 32.0,
        "memory_gb": 288.0,
        "memory_gb_s": 8000.0,
        "tensor_cores": "mfma: bf16, fp16, fp64, fp8, fp6, fp4, int8",
    },
}


def amd() -> list[Target]:
    """The AMD targets."""
    return [
        Target(
            name=f"amd:{architecture}",
            vendor="amd",
            architecture=architecture,
            languages=toolchain.languages("amd"),
            limits={**_COMMON, "shared_memory_bytes_per_block": lds, "shared_memory_bytes_per_sm": lds},
            facts=_FACTS[architecture],
            device="cuda",  # what a ROCm build of torch calls it too
            probe=_available,
            triton=("hip", architecture, 64),
            compile_probe=lambda: toolchain.triton_compiles("amd"),
        )
        for architecture, lds in _LDS.items()
    ]


def _available() -> Availability:
    if not Path("/dev/kfd").exists():
        return False, "no AMD GPU with ROCm's kernel driver (/dev/kfd) on this machine"
    return False, "this version compiles for AMD GPUs, but does not run candidates on them"
