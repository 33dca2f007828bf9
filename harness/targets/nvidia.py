"""NVIDIA GPUs of the data centre: Ampere, Hopper and Blackwell."""

from __future__ import annotations

from harness.target import Availability, Target
from harness.targets import cuda_driver, toolchain

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": equal for 8.0, 9.0 and 10.0.
# The last two lines: `cuda_occupancy.h` of the CUDA toolkit.
_COMMON = {
    "registers_per_sm": 65_536,
    "registers_per_thread": 255,
    "threads_per_block": 1024,
    "threads_per_sm": 2048,
    "blocks_per_sm": 32,
    "warp_size": 32,
    "grid_x": 2**31 - 1,
    "grid_yz": 65_535,
    "register_granularity": 256,  # registers are given to a warp in steps of this
    "shared_memory_granularity": 128,  # bytes
}
# The same table: "maximum amount of shared memory per SM / per thread block". The driver keeps 1 KiB of each
# block for itself from compute capability 8.0 on (Ampere tuning guide, "Unified Shared Memory/L1/Texture
# Cache").
_LIMITS = {
    "sm_80": {"shared_memory_bytes_per_block": 163 << 10, "shared_memory_bytes_per_sm": 164 << 10},
    "sm_90": {"shared_memory_bytes_per_block": 227 << 10, "shared_memory_bytes_per_sm": 228 << 10},
    "sm_100": {
        "shared_memory_bytes_per_block": 227 << 10,
        "shared_memory_bytes_per_sm": 228 << 10,
        "tensor_memory_columns": 512,  # PTX ISA, "Tensor Memory": 512 columns of 128 lanes of 4 bytes
    },
}
_RESERVED = {"shared_memory_bytes_reserved_per_block": 1 << 10}
_FACTS: dict[str, dict[str, str | float]] = {
    # NVIDIA A100 data sheet (80 GB SXM) and A100 architecture white paper.
    "sm_80": {
        "device": "A100 (Ampere)",
        "multiprocessors": 108.0,
        "l2_mib": 40.0,
        "memory_gb": 80.0,
        "memory_gb_s": 2039.0,
        "tensor_cores": "mma.sync: bf16, fp16, tf32, fp64, int8",
        "asynchronous_copies": "cp.async",
    },
    # NVIDIA H100 and H200 data sheets (SXM) and H100 architecture white paper.
    "sm_90": {
        "device": "H100 or H200 (Hopper)",
        "multiprocessors": 132.0,
        "l2_mib": 50.0,
        "memory_gb": 80.0,
        "memory_gb_s": 3350.0,
        "tensor_cores": "wgmma: bf16, fp16, tf32, fp8, int8",
        "asynchronous_copies": "TMA, cp.async",
    },
    # Multiprocessors and L2 as the CUDA driver reports them on a B200 (pytorch/ao pull request 4002); memory:
    # NVIDIA HGX B200 data sheet.
    "sm_100": {
        "device": "B200 (Blackwell)",
        "multiprocessors": 148.0,
        "l2_mib": 126.5,
        "memory_gb": 180.0,
        "memory_gb_s": 7700.0,
        "tensor_cores": "tcgen05: bf16, fp16, tf32, fp8, fp6, fp4",
        "asynchronous_copies": "TMA, cp.async",
    },
}


def nvidia() -> list[Target]:
    """The NVIDIA targets."""
    return [_target(architecture) for architecture in _LIMITS]


def _target(architecture: str) -> Target:
    number = int(architecture.removeprefix("sm_"))

    def available() -> Availability:
        return cuda_driver.has_device(divmod(number, 10))

    return Target(
        name=f"nvidia:{architecture}",
        vendor="nvidia",
        architecture=architecture,
        languages=toolchain.languages("nvidia"),
        limits={**_COMMON, **_RESERVED, **_LIMITS[architecture]},
        facts=_FACTS[architecture],
        device="cuda",
        probe=available,
        triton=("cuda", number, 32),
        compile_probe=lambda: toolchain.triton_compiles("nvidia"),
        find_devices=lambda: cuda_driver.visible_names(divmod(number, 10)),
    )
