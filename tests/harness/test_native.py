"""The light C++ binding, inside an evaluation and outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness import Evaluation
from harness.native import NativeCompileError, load_cpp

SCALE = r"""
#include <cstdint>
extern "C" void scale(const float* x, float* out, int64_t n, float a, bool twice) {
    for (int64_t i = 0; i < n; ++i) out[i] = a * x[i] * (twice ? 2.0f : 1.0f);
}
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELEVOLVE_NATIVE_CACHE", str(tmp_path / "native"))


def test_call_with_each_kind_of_argument(tmp_path: Path) -> None:
    library = load_cpp(SCALE)
    x, out = torch.rand(100), torch.empty(100)
    library.scale(x, out, 100, 1.5, True)
    torch.testing.assert_close(out, 3 * x)
    with pytest.raises(AttributeError, match="no extern"):
        library.missing()
    with pytest.raises(TypeError, match="str"):
        library.scale("x")
    with pytest.raises(ValueError, match="not contiguous"):
        library.scale(x[::2], out, 50, 1.5, True)
    library.scale(x[::2].data_ptr(), out, 1, 1.0, False)
    assert out[0] == x[0]


def test_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_cpp(SCALE).path
    monkeypatch.setattr("harness.native._compile", None)
    assert load_cpp(SCALE).path == first
    with pytest.raises(TypeError):  # other flags need the compiler again
        load_cpp(SCALE, flags=("-O1",))


def test_errors_name_the_line() -> None:
    with pytest.raises(NativeCompileError, match=r"kernel.cpp:4:.*missing") as caught:
        load_cpp(SCALE.replace("a * x[i]", "missing"))
    assert "error" in caught.value.log


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(NativeCompileError, match="install g"):
        load_cpp(SCALE)


PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return 3 * x
def get_inputs():
    return [torch.rand(1000)]
def get_init_inputs():
    return []
"""
CANDIDATE = f'''
import torch
from harness.native import load_cpp
lib = load_cpp(r"""{SCALE}""")
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        lib.scale(x, out, x.numel(), 3.0, False)
        return out
'''


def test_cpp_candidate(evaluate: Callable[..., Evaluation]) -> None:
    result = evaluate(PROBLEM, CANDIDATE)
    assert result.status == "correct", result.reason
    assert [f["rule"] for f in result.flags] == ["layout-specialised"]
    result = evaluate(PROBLEM, CANDIDATE.replace("a * x[i]", "missing"))
    assert result.status == "compile_error"
    assert "kernel.cpp:4" in result.reason
    assert evaluate(PROBLEM, CANDIDATE.replace("3.0, False", "3.1, False")).status == "incorrect"
    crash = evaluate(PROBLEM, CANDIDATE.replace("x.numel()", "1 << 40"))
    assert crash.status == "runtime_error"
    assert "killed by SIG" in crash.reason  # SEGV or BUS: what lies behind the memory decides


def test_triton_candidate_is_judged_by_function_only(evaluate: Callable[..., Evaluation]) -> None:
    candidate = """
import torch, triton
import triton.language as tl
@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 3.0 * tl.load(x + i, mask=i < n), mask=i < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
"""
    result = evaluate(PROBLEM, candidate, timing_budget_s=1.0)
    assert result.status == "correct", result.reason
    assert not result.timed
    assert [f["rule"] for f in result.flags] == ["interpreted"]
    assert evaluate(PROBLEM, candidate.replace("3.0 *", "2.9 *")).status == "incorrect"
