"""The light CUDA binding, compile-only: an environment variable names the device that is not here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import native_cuda, nvrtc
from harness.native import NativeCompileError, load_cuda

SOURCE = r"""
#include <cstdint>
struct Pair { int a, b; };
__global__ void plain(int64_t n) {}
extern "C" __global__ void kernel(const float* x, int64_t n, int m, float a, double d, bool b, Pair p) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = a * x[0] + n + m + (float)d + b + p.b;
}
"""
needs_compiler = pytest.mark.skipif(not nvrtc.has_compiler(), reason="neither NVRTC nor nvcc is here")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELEVOLVE_NATIVE_CACHE", str(tmp_path))
    monkeypatch.setenv(native_cuda.ARCHITECTURE_VARIABLE, "sm_90")


class Tensor:
    """What a launch asks of a tensor."""

    device = "cpu"

    def __init__(self, is_cuda: bool) -> None:
        self.is_cuda = is_cuda

    def data_ptr(self) -> int:
        return 256


@needs_compiler
def test_arguments_are_checked_against_the_kernel() -> None:
    library = load_cuda(SOURCE)
    good: list[Any] = [Tensor(True), 1 << 40, -1, 1.5, 2, True, bytes(8)]
    library.kernel[4, (32, 2), 100 << 10](*good)
    library.plain[1, 1](5)
    assert list(library.kernel.launches) == [((4, 1, 1), (32, 2, 1), 100 << 10)]
    for place, value, error, text in (
        (0, 5.0, TypeError, "argument 0 is a float"),
        (0, Tensor(False), ValueError, "on cpu, not on a CUDA device"),
        (1, Tensor(True), None, ""),  # 64 bits: a pointer may be passed as a number
        (2, 1 << 33, OverflowError, "does not fit into 32 bits"),
        (2, 2.5, TypeError, "u32 parameter"),
        (3, None, TypeError, "f32 parameter"),
        (4, 3, None, ""),
        (6, bytes(7), TypeError, "struct of 8 bytes"),
    ):
        arguments = [*good[:place], value, *good[place + 1 :]]
        if error is None:
            library.kernel[1, 1](*arguments)
        else:
            with pytest.raises(error, match=text):
                library.kernel[1, 1](*arguments)
    with pytest.raises(TypeError, match="takes 7 arguments, not 1"):
        library.kernel[1, 1](None)
    with pytest.raises(ValueError, match="1024 threads"):
        library.kernel[1, 1025]
    with pytest.raises(TypeError, match=r"kernel\[grid, block\]"):
        library.kernel[1]
    with pytest.raises(AttributeError, match="no kernel missing"):
        _ = library.missing


@needs_compiler
def test_errors_name_the_line() -> None:
    with pytest.raises(NativeCompileError, match=r"kernel\.cu\(7\).*missing") as caught:
        load_cuda(SOURCE.replace("a * x[0]", "missing"))
    assert "error" in caught.value.log


@needs_compiler
def test_compiled_once_for_each_architecture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    load_cuda(SOURCE)
    monkeypatch.setattr(nvrtc.Compiler, "compile", None)
    load_cuda(SOURCE)
    with pytest.raises(TypeError):
        load_cuda(SOURCE, flags=("--use_fast_math",))
    monkeypatch.setenv(native_cuda.ARCHITECTURE_VARIABLE, "sm_80")
    with pytest.raises(TypeError):
        load_cuda(SOURCE)


def test_other_architectures_and_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native_cuda.ARCHITECTURE_VARIABLE, "gfx942")
    with pytest.raises(NativeCompileError, match="gfx942"):
        load_cuda(SOURCE)
    monkeypatch.delenv(native_cuda.ARCHITECTURE_VARIABLE)
    import torch

    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="no CUDA device"):
            load_cuda(SOURCE)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc.compiler.cache_clear()
    monkeypatch.setattr(nvrtc, "_nvrtc", lambda: None)
    monkeypatch.setattr(nvrtc, "find_nvcc", lambda: None)
    try:
        with pytest.raises(NativeCompileError, match="nvidia-cuda-nvrtc"):
            load_cuda(SOURCE)
    finally:
        nvrtc.compiler.cache_clear()


def test_parameters_as_newer_compilers_write_them() -> None:
    text = """
        .param .u64 .ptr .global .align 1 k_param_0,
        .param .u32 k_param_1,
        .param .align 4 .b8 k_param_2[12],
        .param .f64 k_param_3
    """
    assert native_cuda._parameters(text) == [("u64", 8), ("u32", 4), ("struct", 12), ("f64", 8)]


def test_a_hanging_compiler_is_killed_with_its_children(tmp_path: Path) -> None:
    import subprocess

    from harness.native_build import run_compiler

    with pytest.raises(NativeCompileError, match="longer than 1 s"):
        run_compiler(["/bin/sh", "-c", "sleep 987.25 & sleep 987.25"], tmp_path, 1.0)
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "987.25" not in listing


@pytest.mark.gpu
def test_launches_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    monkeypatch.delenv(native_cuda.ARCHITECTURE_VARIABLE)
    library = load_cuda(r"""
    extern "C" __global__ void scale(const float* x, float* out, long long n, float a, bool twice) {
        extern __shared__ float tile[];
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        tile[20000 + threadIdx.x] = i < n ? x[i] : 0.0f;
        __syncthreads();
        if (i < n) out[i] = a * tile[20000 + threadIdx.x] * (twice ? 2.0f : 1.0f);
    }
    """)
    x, out = torch.rand(1000, device="cuda"), torch.empty(1000, device="cuda")
    shared = (20000 + 256) * 4  # more than 48 KiB
    library.scale[4, 256, shared](x, out, 1000, 1.5, True)
    torch.testing.assert_close(out, 3 * x)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        stream.wait_stream(torch.cuda.default_stream())
        library.scale[4, 256, shared](x, out, 1000, 1.5, False)
    stream.synchronize()
    torch.testing.assert_close(out, 1.5 * x)
    with pytest.raises(RuntimeError, match="shared memory"):
        library.scale[4, 256, 1 << 20](x, out, 1000, 1.5, True)
