"""Candidates in the CuTe DSL: found in the text, followed at run time, compiled without a device.

What needs the package (`pip install nvidia-cutlass-dsl`) is skipped without it. Functions without a kernel
are compiled for the host: their launches are followed like any other, on a machine without a GPU.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Evaluation, EvaluationRequest, LocalExecutor
from harness.target import get_target
from harness.worker.guard.inspection import inspect_candidate
from harness.worker.guard.kernels import Kernels
from harness.worker.packages import has_cute

needs_cute = pytest.mark.skipif(not has_cute(), reason="nvidia-cutlass-dsl is not installed")
LAUNCH = """
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch(x, y)
        return y
"""


def found(source: str) -> Kernels:
    return inspect_candidate(ast.parse(f"import torch\n{source}")).kernels


@pytest.mark.parametrize(
    ("start", "decorator"),
    [
        ("import cutlass.cute as cute", "cute.kernel"),
        ("import cutlass", "cutlass.cute.kernel()"),
        ("from cutlass import cute as c", "c.jit"),
        ("from cutlass.cute import kernel as k", "k"),
        ("import importlib\nc = importlib.import_module('cutlass.cute')", "c.kernel"),
        ("import cutlass.cute as cute\nmark = getattr(cute, 'kernel')", "mark"),
        ("from cutlass.cutlass_dsl import CuTeDSL", "CuTeDSL.kernel"),
    ],
)
def test_decorated_functions_are_kernels(start: str, decorator: str) -> None:
    kernels = found(f"{start}\n@{decorator}\ndef double(x, y):\n    pass\n{LAUNCH}")
    assert (kernels.cute, kernels.defined, kernels.opaque) == (("double",), ("double",), ())


def test_methods_and_functions_that_are_passed_are_kernels() -> None:
    kernels = found(
        "import cutlass.cute as cute\nclass Doubling:\n    @cute.kernel\n    def run(self, x): pass\n"
        "def launch(x, y): pass\nlaunch = cute.jit(launch)\n" + LAUNCH
    )
    assert kernels.cute == ("run", "launch")


@pytest.mark.parametrize(
    ("text", "opaque"),
    [
        (
            "import cuda.bindings.driver as cuda\ns = cuda.CUstream(torch.cuda.current_stream().cuda_stream)",
            (),
        ),
        (
            "from cuda.bindings import driver\ndef f(k): driver.cuLaunchKernel(k)",
            ("cuda.bindings.driver.cuLaunch",),
        ),
        ("from cuda.bindings.driver import *", ("cuda.bindings.driver.*",)),
        ("from cuda.core.experimental import launch", ("cuda.core",)),
        ("import cutlass\nplan = cutlass.op.Gemm(element=torch.float32)", ("cutlass.op",)),
        ("import cutlass, cutlass.cute\nt = cutlass.cute.runtime.from_dlpack(torch.ones(1))", ()),
    ],
)
def test_other_parts_of_the_packages(text: str, opaque: tuple[str, ...]) -> None:
    assert found(text).opaque == opaque


@pytest.mark.parametrize(
    ("call", "conditional"),
    [
        ("launch(x)", False),
        ("if x.is_contiguous(): launch(x)", True),
        ("if x.is_contiguous(): cute.compile(launch, x)(x)", True),
        ("if x.is_contiguous(): self.compiled(x)", True),
        ("if x.is_contiguous(): Doubling()(x)", True),
        ("if False: launch(x)", False),
    ],
)
def test_launches_under_a_condition(call: str, conditional: bool) -> None:
    source = f"""
import cutlass.cute as cute
@cute.jit
def launch(x): pass
class Doubling:
    @cute.jit
    def __call__(self, x): pass
class ModelNew(torch.nn.Module):
    def __init__(self):
        self.compiled = cute.compile(launch, torch.ones(1))
    def forward(self, x):
        {call}
        return x
"""
    assert found(source).conditional == conditional


@pytest.mark.skipif(has_cute(), reason="nvidia-cutlass-dsl is installed")
def test_a_missing_package_is_named(
    evaluate: Callable[..., Evaluation], body: Callable[..., str], norm_problem: str
) -> None:
    result = evaluate(norm_problem, body(top="import cutlass.cute as cute"))
    assert result.status == "harness_error"
    assert result.reason.endswith(
        "needs the CuTe DSL, which is not installed here: pip install nvidia-cutlass-dsl"
    )
    assert [flag["rule"] for flag in result.flags] == ["missing-package"]
    fallback = evaluate(norm_problem, body(top="try:\n    import cutlass\nexcept ImportError:\n    pass"))
    assert fallback.status == "correct", fallback.reason
    other = evaluate(norm_problem, body(top="import no_such_module"))
    assert other.status == "runtime_error"


def test_another_package_of_that_name_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cutlass" / "cute").mkdir(parents=True)
    (tmp_path / "cutlass" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with LocalExecutor(tmp_path / "cache") as executor:
        result = executor.evaluate(EvaluationRequest(PROBLEM, CANDIDATE, target="nvidia:sm_90"))
    assert result.status == "harness_error"
    assert "without the device: the installed CuTe DSL cannot be used: ModuleNotFoundError" in result.reason


# -- at run time: functions for the host -----------------------------------------------------------------

HOST_PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.tanh(a @ b) * 2
def get_inputs():
    return [torch.rand(32, 48), torch.rand(48, 16)]
def get_init_inputs():
    return []
"""
HOST = """
import torch
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack
@cute.jit
def double(x: cute.Tensor, y: cute.Tensor):
    for i in cutlass.range(cute.size(y)):
        y[i] = x[i] + x[i]
made = {}
def launch(x, y):
    flat = [from_dlpack(t.view(-1)) for t in (x, y)]
    if x.shape not in made:
        made[x.shape] = cute.compile(double, *flat)
    made[x.shape](*flat)
class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        h = torch.tanh(a @ b)
        y = torch.empty_like(h)
"""


@needs_cute
@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("launch(h, y)\n        return y", ""),
        ("double(from_dlpack(h.view(-1)), from_dlpack(y.view(-1)))\n        return y", ""),
        ("launch(h, y)\n        return torch.tanh(a @ b) * 2", "decoy-kernel"),
        ("run = launch\n        run(a[:1].clone(), a[:1].clone())\n        return h * 2", "decoy-kernel"),
        ("return h * 2", "kernel-never-launched"),
    ],
)
def test_launches_are_followed(evaluate: Callable[..., Evaluation], forward: str, reason: str) -> None:
    result = evaluate(HOST_PROBLEM, HOST + "        " + forward)
    assert result.status == ("rejected" if reason else "correct"), result.reason
    assert result.reason.startswith(reason)
    assert reason != "decoy-kernel" or "cute:" in result.reason
    assert not [f for f in result.flags if f["rule"] == "kernels-unchecked"]
    if not reason:
        assert result.custom_kernel_share is not None
        assert 0 < result.custom_kernel_share < 1


# -- without a device ------------------------------------------------------------------------------------

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.ones(n))
    def forward(self, x):
        return torch.relu(x + self.bias)
def get_inputs():
    return [torch.rand(1 << 12, 512)]
def get_init_inputs():
    return [512]
"""
CANDIDATE = """
import cuda.bindings.driver as cuda
import torch
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack
@cute.kernel
def kernel(x: cute.Tensor, bias: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 128 + thread
    value = x[i] + bias[i % cute.size(bias)]
    y[i] = value if value > 0.0 else cutlass.Float32(0.0)
@cute.jit
def launch(x: cute.Tensor, bias: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    kernel(x, bias, y).launch(grid=(cute.size(y) // 128, 1, 1), block=(128, 1, 1), stream=stream)
class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.ones(n))
    def forward(self, x):
        y = torch.empty_like(x)
        tensors = [from_dlpack(t.view(-1), assumed_align=16) for t in (x, self.bias.detach(), y)]
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        run = cute.compile(launch, *tensors, stream)
        run(*tensors, stream)
        return y
"""


@needs_cute
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_compiled(architecture: str, compiled: Callable[..., Evaluation], tmp_path: Path) -> None:
    result = compiled(CANDIDATE, f"nvidia:{architecture}", problem=PROBLEM, texts=tmp_path)
    assert result.status == "compiled", result.reason
    assert result.reason == f"compiled 1 kernel for {architecture}; not run: no such device here"
    assert result.flags == []
    assert "cute" in get_target(f"nvidia:{architecture}").languages
    assert "nvidia-cutlass-dsl" in result.environment
    assert result.profile is not None
    (figures,) = result.profile["static"]
    assert figures["language"] == "cute"
    assert figures["config"] == {"block": [128, 1, 1]}
    assert figures["grid"] == [1 << 14, 1, 1]
    assert 4 <= figures["registers"] <= 64
    assert figures["spills"] == {"store_bytes": 0, "load_bytes": 0}
    assert figures["occupancy"]["share"] == 1.0
    assert {p.suffix for p in tmp_path.iterdir()} == {".ptx", ".cubin", ".sass"}
    assert f".target {architecture}" in next(tmp_path.glob("*.ptx")).read_text()


STATIC = "part = cute.arch.alloc_smem(cutlass.Float32, 1 << 16)\n    part[thread] = x[i]\n"
DYNAMIC = (
    "part = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(1 << 16))\n"
    "    part[thread] = x[i]\n"
)


@needs_cute
@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        (("cute.arch.block_idx()", "cute.arch.block_index()"), "compile_error", "block_index' (line 10)"),
        (("value = x[i]", "value = x[i, 3]"), "compile_error", "weakly congruent"),
        (("value if value", "value if nothing"), "compile_error", "name 'nothing' is not defined (line 13)"),
        (("kernel(x, bias, y)", "kernel(x, bias)"), "compile_error", "argument: 'y' (line 16)"),
        (
            ("value = x", f"{STATIC}    value = x[i] + part[127 - thread] - x"),
            "compile_error",
            "too much shared data",
        ),
        (
            ("value = x", f"{DYNAMIC}    value = x[i] + part[127 - thread] - x"),
            "compile_error",
            "allows 232448",
        ),
        (("cute.size(y) // 128, 1", "1, 70000"), "runtime_error", "65535"),
        (("block=(128", "block=(2048"), "runtime_error", "1024 threads"),
        (("return y", "return y[1:]"), "incorrect", "shape"),
        (("self.bias.detach()", "self.bias"), "runtime_error", "require gradient"),
        (("torch.empty_like(x)", "torch.empty(x.shape)"), "runtime_error", "host"),
    ],
)
def test_what_is_wrong(
    change: tuple[str, str], status: str, reason: str, compiled: Callable[..., Evaluation]
) -> None:
    assert change[0] in CANDIDATE
    result = compiled(CANDIDATE.replace(*change), problem=PROBLEM)
    assert result.status == status, result.reason
    assert reason in result.reason


@needs_cute
def test_questions_about_the_device(compiled: Callable[..., Evaluation]) -> None:
    asks = """        hardware = cutlass.utils.HardwareInfo()
        assert hardware.get_device_multiprocessor_count() == 132
        assert hardware.get_max_active_clusters(2) == 66
"""
    result = compiled(CANDIDATE.replace("        run(", asks + "        run("), problem=PROBLEM)
    assert result.status == "compiled", result.reason


@needs_cute
def test_functions_called_by_way_of_tvm_ffi(compiled: Callable[..., Evaluation]) -> None:
    pytest.importorskip("tvm_ffi")
    start, end = "run = cute.compile(launch, *tensors, stream)", "run(*tensors, stream)"
    called = CANDIDATE.replace(start, start[:-1] + ", options='--enable-tvm-ffi')").replace(
        end, "run(x.view(-1), self.bias.detach(), y.view(-1), stream)"
    )
    result = compiled(called, problem=PROBLEM)
    assert result.status == "compiled", result.reason
    assert "1 kernel" in result.reason


HERE = """
import os, sys
os.environ["CUTE_DSL_ARCH"] = "sm_90a"
import torch, cutlass, cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack
from harness.target import get_target
from harness.worker.profiling.cute import cute_kernels
from harness.worker.profiling.static import figures
@cute.kernel
def copy(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    y[i] = x[i]
@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    copy(x, y).launch(grid=(4, 1, 1), block=(128, 1, 1))
@cute.jit
def on_host(x: cute.Tensor, y: cute.Tensor):
    y[0] = x[0]
tensors = [from_dlpack(torch.ones(512)) for _ in range(2)]
kept = [cute.compile(function, *tensors) for function in (launch, on_host)]
torch.cuda.get_device_capability = lambda: (9, 0)
(kernel,) = cute_kernels()
found = figures(kernel, get_target("nvidia:sm_90").limits, [])
print(found["language"], found["architecture"], "copy" in found["name"], found["registers"])
"""


@needs_cute
def test_figures_of_what_was_compiled_for_a_device_that_is_here(tmp_path: Path, repository: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(HERE)
    added = os.pathsep.join([str(repository), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": added},
    )
    assert done.returncode == 0, done.stderr
    language, architecture, named, registers = done.stdout.split()
    assert (language, architecture, named) == ("cute", "sm_90", "True")
    assert 4 <= int(registers) <= 64
