"""The same program up to names, comments and formatting has one digest; another program never has it."""

from __future__ import annotations

import pytest

from agent.novelty import genome_digest, normalise_c, program_digest

BASE = '''"""A kernel."""
import torch
from torch import nn

CPP = """
#include <cmath>
#define SQUARE(x) ((x) * (x))
extern "C" void run(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) { y[i] = x[i] * 2.0f; } // twice
}
"""

def helper(value, scale=2):
    total = value * scale
    return total

class ModelNew(nn.Module):
    """Doubles."""
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        out = helper(x, scale=2)
        return out + self.weight
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A kernel."""\n', "# made by nobody\n"),
        ('    """Doubles."""\n', ""),
        ("out", "result"),
        ("helper", "twice"),
        ("total", "t"),
        ("CPP", "SOURCE"),
        ("out = helper(x, scale=2)", "out = helper( x,\n            scale = 2 )  # call"),
        ("// twice", "/* something\n else */"),
        ("y[i] = x[i] * 2.0f;", "y[ i ]=x[i]*2.0f ;"),
        ("{ y[i]", "{\n\n      y[i]"),
        ("#include <cmath>", "#include   <cmath>  // maths"),
    ],
)
def test_same_program(old, new):
    changed = BASE.replace(old, new)
    assert changed != BASE
    assert program_digest(changed) == program_digest(BASE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("* 2.0f", "* 3.0f"),
        ("++i", "+ +i"),
        ("x[i] * 2.0f", 'x[i] * 2.0f; puts("a  b")'),
        ("SQUARE(x)", "SQUARE (x)"),
        ("#include <cmath>\n", "#include <cmath> "),
        ("void run", "void walk"),
        ("value * scale", "scale * value"),
        ("self.weight", "self.bias"),
        ("ModelNew", "Model"),
        ("def forward", "def forwards"),
        ("scale=2):", "scale=3):"),
        ("import torch\n", "import torch as torch2\n"),
    ],
)
def test_other_program(old, new):
    changed = BASE.replace(old, new)
    assert changed != BASE
    assert program_digest(changed) != program_digest(BASE)


def test_swapped_names_are_another_program():
    one = "def f(a, b):\n    return a - b\n"
    assert program_digest(one) == program_digest("def g(b, a):\n    return b - a\n")
    assert program_digest(one) != program_digest("def f(a, b):\n    return b - a\n")


def test_strings_in_c_keep_their_white_space():
    assert normalise_c('f("a  // b");') == 'f ( "a  // b" ) ;'
    assert normalise_c("R\"x(a // b)x\" 'c' 1'000 1e-5f") == "R\"x(a // b)x\" 'c' 1'000 1e-5f"


@pytest.mark.parametrize("source", ["class ModelNew(:", "x = 1\0", "(" * 5000, ""])
def test_what_is_not_python_has_a_digest_too(source):
    assert program_digest(source) == program_digest(source)
    assert program_digest(source) != program_digest(source + "#") or source == ""


def test_genomes_are_compared_by_value():
    assert genome_digest({"a": 1, "b": [2]}) == genome_digest({"b": [2], "a": 1})
    assert genome_digest({"a": 1}) != genome_digest({"a": 2})
