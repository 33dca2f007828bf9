"""CUDA C++ for devices that are not here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Evaluation
from harness.nvrtc import find_nvcc, has_compiler

pytest.importorskip("triton")

SAMPLES = Path(__file__).parent / "samples" / "crosscompile"
MODEL = (SAMPLES / "model.py").read_text()

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
