"""Which numbers of a source are tunable, and changing them leaves the rest alone."""

from __future__ import annotations

import ast

import pytest

from agent.tuning import find_parameters, with_value

TRITON = """
import torch, triton
import triton.language as tl
BLOCK_M, BLOCK_N = 64, 128  # π: columns are counted in bytes
EPS, HIDDEN = 1, 512

@triton.jit
def kernel(x, n, TILE: tl.constexpr = 32):
    pass

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.GroupNorm(num_groups=8, num_channels=64)

    def forward(self, x):
        "π"; y = torch.chunk(x, chunks=2); kernel[(1,)](x, 4, BLOCK_M=64, num_warps=4, num_stages=3)
        return torch.split(x, split_size_or_sections=4)
"""

CPP = '''
from harness.native import load_cpp
TILE = 8
CPP = r"""
#define TILE 8
#define EPSILON 8
constexpr int kUnroll = 4;
static const long rows = 16;
void f(float* x) {
#pragma unroll 4
    for (int i = 0; i < TILE; ++i) x[i] = 0;
}
"""
lib = load_cpp(CPP)
class ModelNew: ...
'''


def values(source: str) -> dict[str, int]:
    return {p.name: p.value for p in find_parameters(source)}


def test_sizes_of_work_are_found_and_properties_of_the_problem_are_not():
    assert values(TRITON) == {
        "BLOCK_M": 64, "BLOCK_N": 128, "TILE": 32, "num_warps": 4, "num_stages": 3,
    }  # fmt: skip
    assert values(CPP) == {"TILE": 8, "kUnroll": 4, "unroll": 4}
    assert find_parameters("def broken(") == []


@pytest.mark.parametrize(
    "source", [TRITON, CPP, TRITON.replace("\n", "\r\n"), TRITON.replace("π:", "\u2028\f")]
)
def test_only_the_places_of_a_parameter_change(source):
    for parameter in find_parameters(source):
        changed = with_value(source, parameter, 777)
        ast.parse(changed)
        assert changed.count("777") == len(parameter.spans)
        assert changed.replace("777", str(parameter.value)) == source


def test_host_and_kernel_change_together():
    (tile,) = (p for p in find_parameters(CPP) if p.name == "TILE")
    assert len(tile.spans) == 2
    changed = with_value(CPP, tile, 16)
    assert "TILE = 16\n" in changed
    assert "#define TILE 16\n" in changed


def test_what_an_autotuner_measures_is_left_to_it():
    one = "@triton.autotune(configs=[triton.Config({'BLOCK': 64}, num_warps=4)], key=[])\ndef k(): ...\n"
    two = one.replace("=4)]", "=4), triton.Config({'BLOCK': 128}, num_warps=8)]")
    assert values(one) == {"BLOCK": 64, "num_warps": 4}
    assert values(two) == {}


def test_text_put_together_has_no_place():
    assert values('N = 3\nCPP = f"#define TILE 8 {N}"\n') == {}


def test_neighbours_stay_within_what_hardware_has():
    parameters = {
        p.name: p for p in find_parameters("num_warps = 16\nnum_stages = 1\nBLOCK = 64\nUNROLL = 1")
    }
    assert parameters["num_warps"].neighbours() == [8]
    assert parameters["num_stages"].neighbours() == [2]
    assert parameters["BLOCK"].neighbours() == [128, 32]
    assert parameters["UNROLL"].neighbours() == [2]
