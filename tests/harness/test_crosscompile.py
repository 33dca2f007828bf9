"""Candidates for devices that are not here: compiled, followed, and what can be known is checked."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Evaluation, EvaluationRequest, LocalExecutor
from harness.nvrtc import has_compiler
from harness.target import get_target
from harness.worker.crosscompile.triton_driver import AbsentDriver, Launches

pytest.importorskip("triton")

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.lin = torch.nn.Linear(n, n)
        self.register_buffer("scale", torch.ones(n))
    def forward(self, x):
        return torch.relu(self.lin(x)) * self.scale
def get_inputs():
    return [torch.rand(1 << 14, 512)]
def get_init_inputs():
    return [512]
"""
KERNEL = """
import torch, triton
import triton.language as tl
@triton.jit
def kernel(x, scale, y, n, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.maximum(v, 0.0) * tl.load(scale + i % N), mask=i < n)
"""
MODEL = """
class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.lin = torch.nn.Linear(n, n)
        self.register_buffer("scale", torch.ones(n))
    def forward(self, x):
        h = self.lin(x).contiguous()
        y = torch.empty_like(h)
        kernel[(triton.cdiv(h.numel(), 1024),)](h, self.scale, y, h.numel(), h.shape[1], BLOCK=1024)
        return y
"""
CANDIDATE = KERNEL + MODEL
LAUNCH = "        kernel[(triton"


@pytest.fixture
def compiled(executor: LocalExecutor) -> Callable[..., Evaluation]:
    def run(candidate: str, target: str = "nvidia:sm_90", **settings: object) -> Evaluation:
        texts = settings.pop("texts", None)
        settings["emit"] = texts is not None
        if get_target(target).available()[0]:
            pytest.skip("the device is here")
        problem = str(settings.pop("problem", PROBLEM))
        request = EvaluationRequest(problem, candidate, target=target, **settings)  # type: ignore[arg-type]
        result = executor.evaluate(request)
        if isinstance(texts, Path):
            result.write_emitted(texts)
        assert result.emitted == {}
        return result

    return run


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
        (("tl.maximum(", "tl.maxxximum("), "compile_error", "maxxximum.* \\(line 8\\)"),
        (
            ("v = tl", "tl.static_assert(BLOCK < 9, 'block')\n    v = tl"),
            "compile_error",
            "block \\(line 7\\)",
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


DEVICE_CODE = """
        p = torch.cuda.get_device_properties(x.device)
        assert torch.cuda.is_available() and p.multi_processor_count == 132
        assert torch.cuda.get_device_capability() == (9, 0) and torch.cuda.current_device() == 0
        assert x.is_cuda and not x.is_cpu and x.device.type == "cuda" and x.get_device() == 0
        assert self.lin.weight.device == x.device == self.scale.device
        assert x.data_ptr() % 16 == 0 and x[:, 1:].data_ptr() == x.data_ptr() + 4
        assert x.data_ptr() != self.scale.data_ptr()
        assert torch.zeros(3, device=x.device).is_cuda and torch.zeros(3).to("cuda").is_cuda
        assert torch.arange(3, device="cuda").cuda().is_cuda and x.new_zeros(2).is_cuda
        assert not torch.zeros(3).is_cuda
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.cuda.device(x.device):
            x.record_stream(side)
            torch.cuda.Event(enable_timing=True).record()
        torch.cuda.synchronize()
        n_regs = None
        warm = kernel.warmup(x, self.scale, x, x.numel(), 512, BLOCK=1024, grid=(1,))
        warm._init_handles()
        assert warm.n_regs > 0
        limits = triton.runtime.driver.active.utils.get_device_properties(0)
        assert limits["max_shared_mem"] == 232448
"""


def test_code_that_asks_for_the_device(compiled: Callable[..., Evaluation]) -> None:
    result = compiled(CANDIDATE.replace("        h = self", DEVICE_CODE + "        h = self"))
    assert result.status == "compiled", result.reason
    assert result.flags == []


def test_operators_between_launches_cost_no_memory(compiled: Callable[..., Evaluation]) -> None:
    """Inputs of 32 GiB, and torch's operators on them."""
    more = """
        h = torch.nn.functional.layer_norm(h, (512,)).softmax(-1)
        h = torch.nn.functional.conv1d(h.view(-1, 512, 1), torch.ones(512, 1, 1).cuda(), groups=512)[..., 0]
        s = torch.nn.functional.scaled_dot_product_attention(h[:64][None], h[:64][None], h[:64][None])
        h = torch.cat([s[0], h[64:]]).contiguous()
"""
    result = compiled(
        CANDIDATE.replace("        y = torch", more + "        y = torch"),
        problem=PROBLEM.replace("1 << 14", "1 << 24"),
    )
    assert result.status == "compiled", result.reason


def test_kernels_behind_a_custom_operator(compiled: Callable[..., Evaluation]) -> None:
    operator = """
@torch.library.custom_op("mine::f", mutates_args=())
def f(h: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(h)
    assert y.is_cuda
    kernel[(triton.cdiv(h.numel(), 1024),)](h, scale, y, h.numel(), h.shape[1], BLOCK=1024)
    return y
@f.register_fake
def _(h, scale):
    return torch.empty_like(h)
"""
    model = MODEL.partition("        y = torch")[0] + "        return torch.ops.mine.f(h, self.scale)\n"
    result = compiled(KERNEL + operator + model)
    assert "compiled 1 kernel" in result.reason, result.reason


def test_contents_that_are_not_known(compiled: Callable[..., Evaluation]) -> None:
    reads = "        n = x.sum().item() + float(x[0, 0]) + x.cpu().sum().item()\n"
    result = compiled(CANDIDATE.replace(LAUNCH, reads + LAUNCH))
    assert result.status == "compiled", result.reason
    (flag,) = result.flags
    assert flag["rule"] == "assumed-values"
    assert "line 18: item" in flag["detail"]


def test_following_ends_where_contents_decide(compiled: Callable[..., Evaluation]) -> None:
    result = compiled(CANDIDATE.replace("return y", "return y[y > 0]"))
    assert result.status == "compiled", result.reason
    assert [f["rule"] for f in result.flags] == ["not-followed"]
    early = CANDIDATE.replace("        y = torch", "        h = h[h > 0]\n        y = torch")
    result = compiled(early)
    assert result.status == "harness_error"
    assert "without the device" in result.reason


def test_no_kernel(compiled: Callable[..., Evaluation]) -> None:
    result = compiled(PROBLEM.replace("class Model", "class ModelNew"))
    assert result.status == "compiled"
    assert [f["rule"] for f in result.flags] == ["no-kernels"]


def test_a_swallowed_compile_error_is_no_kernel(compiled: Callable[..., Evaluation]) -> None:
    fallback = (
        CANDIDATE.replace("tl.maximum(", "tl.maxxximum(")
        .replace(LAUNCH, "        try:\n    " + LAUNCH)
        .replace(
            "        return y",
            "        except Exception:\n            y = torch.relu(h) * self.scale\n        return y",
        )
    )
    result = compiled(fallback)
    assert "no kernel of its own" in result.reason, result.reason


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


def test_invalid_problem(compiled: Callable[..., Evaluation]) -> None:
    result = compiled(CANDIDATE, problem=PROBLEM.replace("def get_inputs", "def inputs"))
    assert result.status == "invalid_problem"
    assert "get_inputs" in result.reason


def test_inputs_that_need_contents(compiled: Callable[..., Evaluation]) -> None:
    drawn = "x = torch.rand(64, 512); assert float(x.max()) < 1; return [x[x[:, 0] >= 0]]"
    result = compiled(CANDIDATE, problem=PROBLEM.replace("return [torch.rand(1 << 14, 512)]", drawn))
    assert result.status == "compiled", result.reason


CUDA = '''
import torch
from harness.native import load_cuda
lib = load_cuda(r"""
#include <cstdint>
extern "C" __global__ void kernel(const float* x, const float* scale, float* y, int64_t n, int N) {
    extern __shared__ float tile[];
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    if (i < n) y[i] = fmaxf(tile[threadIdx.x], 0.0f) * scale[i % N];
}
""")
''' + MODEL.replace(
    "kernel[(triton.cdiv(h.numel(), 1024),)](h, self.scale, y, h.numel(), h.shape[1], BLOCK=1024)",
    "lib.kernel[h.numel() // 1024, 1024, 100 << 10](h, self.scale, y, h.numel(), h.shape[1])",
)
needs_cuda_compiler = pytest.mark.skipif(not has_compiler(), reason="neither NVRTC nor nvcc is here")


@needs_cuda_compiler
def test_cuda_source(compiled: Callable[..., Evaluation]) -> None:
    result = compiled(CUDA)
    assert result.status == "compiled", result.reason
    assert result.profile is not None
    (figures,) = result.profile["static"]
    assert figures["language"] == "cuda"
    assert figures["shared_bytes"] == 100 << 10
    assert (
        figures["occupancy"]
        == {
            "blocks": 2,
            "warps": 64,
            "share": 1.0,
            "limited_by": ["registers", "shared memory", "warps"],
        }
        or figures["occupancy"]["blocks"] <= 2
    )
    over = compiled(CUDA.replace("100 << 10", "228 << 10"))
    assert over.status == "compile_error"
    assert f"{228 << 10} bytes" in over.reason
    assert "232448" in over.reason
    wrong = compiled(CUDA.replace("fmaxf", "fmaxxf"))
    assert wrong.status == "compile_error"
    assert "kernel.cu(7)" in wrong.reason
    other = compiled(CUDA, "amd:gfx942")
    assert other.status == "compile_error"
    assert "CUDA C++ cannot be compiled for gfx942" in other.reason


INLINE = (
    '''
import torch
from torch.utils.cpp_extension import load_inline
source = """
#include <cuda_runtime.h>
__global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}
"""
extension = load_inline("e", "at::Tensor f(at::Tensor x);", source, functions=["f"], no_implicit_headers=True)
'''
    + MODEL.partition("        y = torch")[0]
    + "        return extension.f(h)\n"
)


def test_inline_extension(compiled: Callable[..., Evaluation]) -> None:
    from harness.nvrtc import find_nvcc

    result = compiled(INLINE)
    if find_nvcc() is None:
        assert result.status == "harness_error"
        assert "nvcc" in result.reason
        return
    assert result.status == "compiled", result.reason
    assert [f["rule"] for f in result.flags] == ["not-followed"]
    assert result.profile is not None
    assert "relu" in result.profile["static"][0]["name"]
    wrong = compiled(INLINE.replace("fmaxf", "fmaxxf"))
    assert wrong.status == "compile_error"
    assert "cuda.cu(5)" in wrong.reason
