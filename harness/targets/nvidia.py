"""NVIDIA GPUs: facts for prompts. Running candidates on them is not part of this version."""

from __future__ import annotations

from harness.target import Availability, Target

# Sources: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability"; H100 data
# sheet.
_HOPPER_LIMITS = {
    "shared_memory_bytes_per_block": 232_448,
    "shared_memory_bytes_per_sm": 233_472,
    "registers_per_sm": 65_536,
    "registers_per_thread": 255,
    "threads_per_block": 1024,
    "threads_per_sm": 2048,
    "warp_size": 32,
}
_HOPPER_FACTS: dict[str, str | float] = {
    "device": "H100 or H200 (Hopper)",
    "multiprocessors": 132.0,
    "l2_mib": 50.0,
    "tensor_cores": "wgmma: bf16, fp16, tf32, fp8, int8",
    "asynchronous_copies": "TMA, cp.async",
}


def nvidia() -> list[Target]:
    """The NVIDIA targets."""
    languages = ("triton", "cuda")
    limits, facts = _HOPPER_LIMITS, _HOPPER_FACTS
    return [Target("nvidia:sm_90", "nvidia", "sm_90", languages, limits, facts, "cuda", _available)]


def _available() -> Availability:
    return False, "this version evaluates on cpu only; a CUDA device cannot be used yet"
