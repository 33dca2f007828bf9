"""Occupancy by the vendors' rules, and figures read from compilers' output."""

from __future__ import annotations

import pytest

from harness.target import get_target
from harness.worker.profiling import occupancy, sass
from harness.worker.profiling.static import Compiled, figures, registers_of

HOPPER = get_target("nvidia:sm_90").limits
MI300 = get_target("amd:gfx942").limits


@pytest.mark.parametrize(
    ("warps", "registers", "shared", "blocks", "limit"),
    [
        (4, 32, 0, 16, ["registers", "warps"]),  # 65536 / (32 * 32 * 4)
        (8, 33, 0, 6, ["registers"]),  # rounded up to 40 a thread: 51 warps, 12 in each quarter
        (8, 255, 0, 1, ["registers"]),
        (4, 16, 48 << 10, 4, ["shared memory"]),  # 49 KiB each with the driver's share
        (4, 16, 227 << 10, 1, ["shared memory"]),
        (4, 16, 228 << 10, 0, ["shared memory"]),
        (1, 16, 0, 32, ["blocks"]),
    ],
)
def test_nvidia(warps: int, registers: int, shared: int, blocks: int, limit: list[str]) -> None:
    found = occupancy.of(HOPPER, warps, registers, shared)
    assert (found["blocks"], found["limited_by"]) == (blocks, limit)
    assert found["share"] == round(blocks * warps / 64, 3)


@pytest.mark.parametrize(
    ("warps", "registers", "shared", "waves"),
    [(4, 64, 0, 32), (4, 65, 0, 28), (8, 128, 0, 16), (8, 512, 0, 0), (4, 512, 0, 4), (4, 64, 64 << 10, 4)],
)
def test_amd(warps: int, registers: int, shared: int, waves: int) -> None:
    assert occupancy.of(MI300, warps, registers, shared)["warps"] == waves


def test_a_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "find", lambda _: None)
    missing: list[str] = []
    kernel = Compiled("k", "triton", "sm_90", "", warps=4, shared_bytes=512, binaries={"cubin": b""})
    found = figures(kernel, HOPPER, missing)
    assert found["shared_bytes"] == 512
    assert "registers" not in found
    assert missing == ["cuobjdump: not found; no registers, spills, instructions and occupancy"]


SASS = """
Resource usage:
 Common:
  GLOBAL:0
 Function other:
  REG:9 STACK:0 SHARED:0 LOCAL:0
 Function k:
  REG:40 STACK:16 SHARED:1536 LOCAL:0 CONSTANT[0]:584
\t\tFunction : other
        /*0000*/                   EXIT ;
\t\tFunction : k
        /*0000*/                   LDC R1, c[0x0][0x28] ;       /* 0x00000a00ff017b82 */
        /*0010*/              @!P0 STL.64 [R1+0x8], R2 ;
        /*0020*/                   STL [R1], R2 ;
        /*0030*/              @UP1 LDL.LU.128 R4, [R1] ;
        /*0040*/                   HGMMA.64x128x16.F32 R24, gdesc[UR8].tnspB, R24 ;
        /*0050*/                   NOP ;
"""


def test_sass_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "find", lambda _: "cuobjdump")
    monkeypatch.setattr(sass, "_run", lambda *_: SASS)
    kernel = Compiled("k", "cuda", "sm_90", "", warps=4, dynamic_shared_bytes=100, binaries={"cubin": b""})
    found = figures(kernel, HOPPER, [])
    assert found["registers"] == 40
    assert found["stack_bytes"] == 16
    assert found["spills"] == {"store_bytes": 12, "load_bytes": 16}
    assert found["shared_bytes"] == 512 + 100  # without the driver's own 1 KiB
    assert found["tensor_core"] == {"HGMMA": 1}
    assert found["instructions"]["total"] == 5
    assert "Function : other" not in kernel.texts["sass"]


def test_registers_from_a_code_object_of_amd() -> None:
    assert registers_of(b"..\xab.vgpr_count\x76\xb1.vgpr_spill_count\0") == 0x76
    assert registers_of(b"..\xab.vgpr_count\xcc\x80") == 128
    assert registers_of(b"..\xab.vgpr_count\xcd\x01\x00") == 256
