"""How many blocks of a kernel fit on one multiprocessor or compute unit at once."""

from __future__ import annotations

from typing import Any


def of(limits: dict[str, int], warps: int, registers: int, shared_bytes: int) -> dict[str, Any]:
    """Theoretical occupancy from a target's limits: blocks and warps per multiprocessor, the share of the
    most warps that it holds, and what limits it (several where they tie). `registers` are per thread.
    """
    rooms, most = (
        _amd(limits, warps, registers) if "waves_per_simd" in limits else _nvidia(limits, warps, registers)
    )
    if shared_bytes:
        room = limits["shared_memory_bytes_per_sm"]
        step = limits.get("shared_memory_granularity", 1)
        used = shared_bytes + limits.get("shared_memory_bytes_reserved_per_block", 0)
        rooms["shared memory"] = room // _up(used, step)
    blocks = min(rooms.values())
    return {
        "blocks": blocks,
        "warps": blocks * warps,
        "share": round(blocks * warps / most, 3),
        "limited_by": sorted(name for name, room in rooms.items() if room == blocks),
    }


def _nvidia(limits: dict[str, int], warps: int, registers: int) -> tuple[dict[str, int], int]:
    """As `cuda_occupancy.h` of the CUDA toolkit counts: registers are given to whole warps in steps, and each
    of the four parts of a multiprocessor has a quarter of them.
    """
    most = limits["threads_per_sm"] // limits["warp_size"]
    per_warp = _up(max(registers, 1) * limits["warp_size"], limits["register_granularity"])
    rooms = {
        "warps": most // warps,
        "blocks": limits["blocks_per_sm"],
        "registers": (limits["registers_per_sm"] // 4 // per_warp) * 4 // warps,
    }
    return rooms, most


def _amd(limits: dict[str, int], warps: int, registers: int) -> tuple[dict[str, int], int]:
    """As LLVM's AMDGPU back end counts waves: a SIMD's registers divided by what a thread takes, in steps."""
    most = limits["waves_per_simd"] * limits["simds_per_cu"]
    per_thread = _up(max(registers, 1), limits["register_granularity"])
    waves = min(limits["waves_per_simd"], limits["registers_per_simd_lane"] // per_thread)
    return {"warps": most // warps, "registers": waves * limits["simds_per_cu"] // warps}, most


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
