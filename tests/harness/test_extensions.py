"""Torch's inline extensions for devices that are not here: HIP C++ by hipcc, C++ on the host."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Evaluation
from harness.target import get_target
from harness.worker.crosscompile import hip
from harness.worker.profiling.static import Compiled, figures

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(1 << 10)]
def get_init_inputs():
    return []
"""
INLINE = '''
import torch
from torch.utils.cpp_extension import load_inline
source = """
#include <cuda_runtime.h>
__global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
__global__ void sums(const float* x, float* y) {
    __shared__ float part[256];
    part[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) for (int i = 0; i < 256; ++i) y[blockIdx.x] += part[i];
}
"""
extension = load_inline("e", "", source, functions=[], no_implicit_headers=True)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.f(x)
'''
needs_hipcc = pytest.mark.skipif(hip.find_hipcc() is None, reason="hipcc is not here")


@pytest.mark.skipif(hip.find_hipcc() is not None, reason="hipcc is here")
def test_a_missing_hipcc_is_named(compiled: Callable[..., Evaluation]) -> None:
    result = compiled(INLINE, "amd:gfx942", problem=PROBLEM)
    assert result.status == "harness_error"
    assert result.reason.endswith("the extension e needs hipcc: not found")
    assert "hip" not in get_target("amd:gfx942").languages


@needs_hipcc
def test_hip(compiled: Callable[..., Evaluation], tmp_path: Path) -> None:
    result = compiled(INLINE, "amd:gfx90a", problem=PROBLEM, texts=tmp_path)
    assert result.status == "compiled", result.reason
    assert "hip" in get_target("amd:gfx90a").languages
    assert [f["rule"] for f in result.flags] == ["not-followed"]
    assert result.profile is not None
    relu, sums = result.profile["static"]
    assert "relu" in relu["name"]
    assert (relu["language"], relu["shared_bytes"], sums["shared_bytes"]) == ("hip", 0, 1024)
    assert 2 <= relu["registers"] <= 32
    assert relu["instructions"]["top"]
    assert {p.suffix for p in tmp_path.iterdir()} == {".amdgcn", ".hsaco"}
    assert all(p.read_bytes().startswith(b"\x7fELF") for p in tmp_path.glob("*.hsaco"))
    wrong = compiled(
        INLINE.replace("blockIdx.x * blockDim", "blockIndex.x * blockDim"), "amd:gfx90a", problem=PROBLEM
    )
    assert wrong.status == "compile_error"
    assert "blockIndex" in wrong.reason


ASSEMBLY = """
first:                                  ; @first
\ts_load_dwordx4 s[0:3], s[4:5], 0x0
\tv_mov_b32_e32 v0, 0
\ts_endpgm
.Lfunc_end0:
second:                                 ; @second
\tv_mfma_f32_32x32x8f16 a[0:15], v[0:1], v[2:3], a[0:15]
\tv_mfma_f32_32x32x8f16 a[0:15], v[0:1], v[2:3], a[0:15]
.Lfunc_end1:
---
amdhsa.kernels:
  - .agpr_count:     0
    .args:
      - .address_space:  global
        .name:           x.coerce
    .group_segment_fixed_size: 0
    .name:           first
    .private_segment_fixed_size: 0
    .sgpr_count:     12
    .sgpr_spill_count: 0
    .symbol:         first.kd
    .vgpr_count:     1
    .vgpr_spill_count: 0
  - .agpr_count:     16
    .group_segment_fixed_size: 512
    .name:           second
    .private_segment_fixed_size: 8
    .sgpr_count:     20
    .sgpr_spill_count: 1
    .symbol:         second.kd
    .vgpr_count:     40
    .vgpr_spill_count: 3
amdhsa.version:
  - 1
"""


def test_several_kernels_of_one_assembly() -> None:
    assert hip.kernel_names(ASSEMBLY) == ["first", "second"]
    limits = get_target("amd:gfx942").limits
    first, second = (
        figures(Compiled(name, "hip", "gfx942", name, texts={"amdgcn": ASSEMBLY}), limits, [])
        for name in ("first", "second")
    )
    assert (first["registers"], first["scalar_registers"], first["shared_bytes"]) == (1, 12, 0)
    assert first["instructions"]["total"] == 3
    assert (second["registers"], second["accumulator_registers"], second["shared_bytes"]) == (40, 16, 512)
    assert second["spills"] == {"vector_registers": 3, "scalar_registers": 1}
    assert second["tensor_core"] == {"v_mfma_f32_32x32x8f16": 2}


def test_hipcc_is_looked_for_where_rocm_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin" / "hipcc"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    assert hip.find_hipcc() == str(tool)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("ROCM_PATH")
    assert hip.find_hipcc() in (None, "/opt/rocm/bin/hipcc")


HOST = '''
import torch
from torch.utils.cpp_extension import load_inline
source = """
#include <pybind11/pybind11.h>
long padded(long n) { return (n + 255) / 256 * 256; }
long elements(pybind11::object x) { return x.attr("numel")().cast<long>(); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("padded", &padded); m.def("elements", &elements); }
"""
extension = load_inline("e", source, no_implicit_headers=True)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        n = extension.padded(x.numel() - 3)
        assert extension.elements(torch.ones(3)) == 3
        return torch.relu(x[:n])
'''


@pytest.mark.full
@pytest.mark.skipif(shutil.which("ninja") is None, reason="ninja is not here")
def test_an_extension_for_the_host_is_built_and_called(compiled: Callable[..., Evaluation]) -> None:
    result = compiled(HOST, problem=PROBLEM)
    assert result.status == "compiled", result.reason
    assert "no kernel of its own" in result.reason
    wrong = compiled(HOST.replace("(n + 255)", "(m + 255)"), problem=PROBLEM)
    assert wrong.status == "compile_error"
    given = compiled(HOST.replace("elements(torch.ones(3))", "elements(x)"), problem=PROBLEM)
    assert given.status == "harness_error"
    assert "elements() of the C++ extension e takes tensors of the device" in given.reason
