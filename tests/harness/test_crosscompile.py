"""Candidates for devices that are not here: every configuration is compiled, every limit checked."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Evaluation
from harness.target import get_target
from harness.worker.crosscompile.triton_driver import AbsentDriver, Launches

pytest.importorskip("triton")

SAMPLES = Path(__file__).parent / "samples" / "crosscompile"
KERNEL, MODEL = ((SAMPLES / f"{name}.py").read_text() for name in ("kernel", "model"))
CANDIDATE, LAUNCH = KERNEL + MODEL, "        kernel[(triton"


@pytest.mark.parametrize("target", [f"nvidia:sm_{n}" for n in (80, 90, 100)])
def test_nvidia(target: str, compiled: Callable[..., Evaluation], tmp_path: Path) -> None:
    result = compiled(CANDIDATE, target, texts=tmp_path / "texts")
    assert (result.status, result.timed, result.speedup) == ("compiled", False, None), result.reason
    architecture = target.partition(":")[2]
    assert result.reason == f"compiled 1 kernel for {architecture}; not run: no such device here"
    assert result.flags == []
    assert result.profile is not None
    (figures,) = result.profile["static"]
    assert figures["name"] == "kernel"
    assert figures["config"]["constexprs"] == {"BLOCK": 1024}
    assert figures["grid"] == [1 << 13, 1, 1]
    assert 8 <= figures["registers"] <= 64
    assert figures["occupancy"]["share"] == 1.0
    assert figures["instructions"]["top"]
    kinds = {p.suffix for p in (tmp_path / "texts").iterdir()}
    assert kinds == {".ttir", ".ttgir", ".llir", ".ptx", ".sass", ".cubin"}


@pytest.mark.parametrize("target", [f"amd:gfx{n}" for n in ("90a", "942", "950")])
def test_amd(target: str, compiled: Callable[..., Evaluation], tmp_path: Path) -> None:
    vendor = LAUNCH.replace("kernel[", "assert torch.version.hip\n        kernel[")
    result = compiled(CANDIDATE.replace(LAUNCH, vendor), target, texts=tmp_path)
    assert result.status == "compiled", result.reason
    assert result.profile is not None
    (figures,) = result.profile["static"]
    assert 4 <= figures["registers"] <= 64
    assert figures["spills"] == {"vector_registers": 0, "scalar_registers": 0}
    (text,) = tmp_path.glob("*.amdgcn")
    assert target.partition(":")[2] in text.read_text()
    assert list(tmp_path.glob("*.hsaco"))


MATMUL = """
import torch, triton
import triton.language as tl
CONFIGS = [triton.Config({"BM": m, "BN": m, "BK": k}, num_warps=4, num_stages=s)
           for m, k, s in ((64, 32, 3), (128, 64, 3), (256, 128, 4))]
@triton.autotune(CONFIGS, key=["K"])
@triton.heuristics({"EVEN": lambda a: a["K"] % a["BK"] == 0})
@triton.jit
def matmul(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        tl.static_assert(EVEN)
        acc += tl.dot(tl.load(a + rm[:, None] * K + k + rk), tl.load(b + (k + rk)[:, None] * N + rn))
    tl.store(c + rm[:, None] * N + rn, acc)
class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
        grid = lambda m: (a.shape[0] // m["BM"], b.shape[1] // m["BN"])
        matmul[grid](a, b, c, b.shape[1], a.shape[1])
        return c
"""
MATMUL_PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
def get_inputs():
    return [torch.rand(4096, 4096).half() for _ in range(2)]
def get_init_inputs():
    return []
"""


def test_every_configuration_of_an_autotuner(compiled: Callable[..., Evaluation]) -> None:
    result = compiled(MATMUL, problem=MATMUL_PROBLEM)
    assert result.status == "compiled", result.reason
    assert "1 kernel (3 configurations)" in result.reason
    (flag,) = result.flags
    assert flag["rule"] == "configurations-fail"
    assert "232448" in flag["detail"]  # the largest asks for more shared memory than a block can have
    assert result.profile is not None
    by_size = {f["config"]["constexprs"]["BM"]: f for f in result.profile["static"]}
    assert by_size[128]["tensor_core"]["HGMMA"] > 0
    assert by_size[128]["shared_bytes"] == 3 * 2 * 128 * 64 * 2  # stages, operands, tile, fp16
    assert by_size[256]["shared_bytes"] > 232448
    assert by_size[256]["spills"]["store_bytes"] > 0
    assert by_size[256]["occupancy"]["blocks"] == 0


def test_too_much_shared_memory(compiled: Callable[..., Evaluation]) -> None:
    result = compiled(MATMUL.replace("((64, 32, 3), (128, 64, 3), (256, 128, 4))", "((128, 128, 4),)"))
    assert result.status != "compiled"  # another problem's inputs: not what is tested here
    result = compiled(
        MATMUL.replace("((64, 32, 3), (128, 64, 3), (256, 128, 4))", "((128, 128, 4),)"),
        problem=MATMUL_PROBLEM,
    )
    assert result.status == "compile_error"
    assert "262144" in result.reason
    assert "232448" in result.reason


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        (("tl.maximum(", "tl.maxxximum("), "compile_error", "maxxximum.* \\(line 7\\)"),
        (
            ("v = tl", "tl.static_assert(BLOCK < 9, 'block')\n    v = tl"),
            "compile_error",
            "block \\(line 6\\)",
        ),
        (("torch.empty_like(h)", "torch.empty(h.shape)"), "runtime_error", "cpu tensor"),
        (("(triton.cdiv(h.numel(), 1024),)", "(1, 70000)"), "runtime_error", "65535"),
        (("return y", "return y.half()"), "incorrect", "dtype float16, expected float32"),
        (("return y", "return y[1:]"), "incorrect", "shape"),
        (("return y", "return y, y"), "incorrect", "structure"),
        (("return y", "raise NotImplementedError('no')"), "runtime_error", "NotImplementedError: no"),
        (("return y", "return y + torch.ones(512)"), "runtime_error", "cpu.*cuda:0"),
        (("h.numel(), h.shape[1], B", "h.numel(), B"), "runtime_error", "missing"),
        (("class ModelNew", "class Other"), "compile_error", "no class ModelNew"),
        (("import torch, triton", "import torch, triton\ntorch.relu = None"), "rejected", "patches-library"),
    ],
)
def test_what_is_wrong(
    change: tuple[str, str], status: str, reason: str, compiled: Callable[..., Evaluation]
) -> None:
    import re

    assert change[0] in CANDIDATE
    result = compiled(CANDIDATE.replace(*change))
    assert result.status == status, result.reason
    assert re.search(reason, result.reason), result.reason


GLUON = """
import torch, triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
@gluon.jit
def kernel(x, scale, y, n, N, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    v = gl.load(x + i, mask=i < n)
    gl.store(y + i, gl.maximum(v, 0.0) * gl.load(scale + i % N), mask=i < n)
"""


def test_gluon(compiled: Callable[..., Evaluation]) -> None:
    result = compiled(GLUON + MODEL)
    assert result.status == "compiled", result.reason
    assert result.profile is not None
    assert result.profile["static"][0]["language"] == "gluon"
    wrong = compiled(GLUON + MODEL, "amd:gfx942")  # its layout is for warps of 32
    assert wrong.status == "compile_error", wrong.reason


DESCRIPTORS = """
import torch, triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor
def choose_blocks(arguments):
    for name in ("a", "c"):
        arguments[name].block_shape = [arguments["B"], 64]
@triton.autotune([triton.Config({"B": b}, pre_hook=choose_blocks) for b in (64, 128)], key=["N"])
@triton.jit
def double(a, c, N, B: tl.constexpr):
    for j in range(0, N, 64):
        c.store([tl.program_id(0) * B, j], a.load([tl.program_id(0) * B, j]) * 2)
class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        of = [TensorDescriptor(t, list(t.shape), list(t.stride()), [1, 64]) for t in (a, c)]
        double[lambda m: (a.shape[0] // m["B"],)](*of, a.shape[1])
        return c
"""


def test_tensor_descriptors(compiled: Callable[..., Evaluation], tmp_path: Path) -> None:
    result = compiled(DESCRIPTORS, problem=MATMUL_PROBLEM, texts=tmp_path)
    assert "1 kernel (2 configurations)" in result.reason, result.reason
    assert all("cp.async.bulk.tensor" in p.read_text() for p in tmp_path.glob("*.ptx"))


def test_a_hanging_compilation_ends(compiled: Callable[..., Evaluation]) -> None:
    hang = CANDIDATE.replace("return y", "import subprocess; subprocess.run(['sleep', '1000'])")
    result = compiled(hang, build_limit_s=5.0)
    assert result.status == "timeout"
    assert "compiling took longer than 5 s" in result.reason


def test_the_time_for_configurations_is_limited() -> None:
    launches = Launches(deadline=time.monotonic() - 1)
    driver = AbsentDriver(get_target("nvidia:sm_90").plain(), launches)
    calls: list[int] = []

    def compile_one() -> None:
        calls.append(1)
        launches.count += 1

    times = [driver.benchmark(compile_one, quantiles=(0.5, 0.2, 0.8))[0] for _ in range(3)]
    assert (len(calls), launches.left_out) == (1, 2)  # one has to work
    assert times[0] < times[1] == times[2]
