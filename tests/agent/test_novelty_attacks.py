"""Attacks on novelty: one program in other words has one digest, one wrong word makes another program."""

from __future__ import annotations

import random
import re

import pytest

from agent.novelty import normalise_c, program_digest
from agent.novelty.python_code import normal_form

TRITON = """\
import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 128

@triton.autotune(
    configs=[triton.Config({"BLOCK_M": 64}, num_warps=4), triton.Config({"BLOCK_M": 128})],
    key=["n_rows"],
)
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, BLOCK_M: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK_M)
    x = tl.load(x_ptr + row * n_cols + offs, mask=offs < n_cols, other=-float("inf"))
    x = x - tl.max(x, axis=0)
    num = tl.exp(x)
    tl.store(y_ptr + row * n_cols + offs, num / tl.sum(num, axis=0), mask=offs < n_cols)

def launch(x):
    y = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(x.shape[0], meta["BLOCK_M"]),)
    softmax_kernel[grid](x, y, n_rows=x.shape[0], n_cols=x.shape[1])
    return y

class ModelNew(nn.Module):
    def forward(self, x):
        out = launch(x)
        return out
"""

CUDA = '''\
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SRC = r"""
#include <torch/extension.h>
#define THREADS 256
template <typename scalar_t, int UNROLL>
__global__ void relu_kernel(const scalar_t* __restrict__ in, scalar_t* out, int n) {
  int idx = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x;
  // loop
  #pragma unroll
  for (int i = idx, j = 0; i < n; i += stride, ++j) {
    scalar_t v = in[i];
    float acc = v * FLT_MAX;
    out[i] = v > 0 ? v : 0;
  }
}
static __device__ float helper(float a, float b) { return a * b; }

torch::Tensor relu_cuda(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const int n = x.numel();
  relu_kernel<float, 4><<<(n + THREADS - 1) / THREADS, THREADS>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""
DECL = "torch::Tensor relu_cuda(torch::Tensor x);"
ext = load_inline(name="relu_v1", cpp_sources=DECL, cuda_sources=SRC, functions=["relu_cuda"],
                  extra_cuda_cflags=["-O3"])

class ModelNew(nn.Module):
    def forward(self, x):
        return ext.relu_cuda(x)
'''

OPENMP = '''\
from harness.native import load_cpp
CPP_SOURCE = f"""
#include <cmath>
#ifndef TILE
#define TILE {8*4}
#endif
static inline float sq(float v) {{ return v * v; }}
extern "C" void run(const float* x, float* out, int64_t rows, float eps) {{
  float sum = 0.f;
  #pragma omp parallel for reduction(+:sum) // go
  for (int64_t r = 0; r < rows; ++r) {{ float t = x[r]; sum += sq(t); }}
  for (int64_t r = 0; r < rows; ++r) out[r] = x[r] / sum + eps;
}}
"""
lib = load_cpp(CPP_SOURCE)
def f(x): lib.run(x)
'''

RENAMED = {
    TRITON: "softmax_kernel BLOCK_M n_rows n_cols x_ptr y_ptr row offs num launch grid meta y BLOCK",
    CUDA: "relu_kernel relu_cuda relu_v1 idx stride THREADS scalar_t UNROLL helper acc SRC DECL ext i j v",
    OPENMP: "sum run sq rows eps t r lib CPP_SOURCE",
}
REWRITTEN = [
    (
        TRITON,
        "import triton\nimport triton.language as tl\nfrom torch import nn",
        "from torch import nn\nimport triton.language as tl, triton",
    ),
    (TRITON, "import triton.language as tl", "from triton import language as tl"),
    (TRITON, "    row = tl", '    """One row."""\n    # and now\n    row = tl'),
    (TRITON, "class ModelNew(nn.Module):\n", "class ModelNew(nn.Module):\n    'Doc.'\n    ...\n"),
    (
        TRITON,
        "        out = launch(x)\n        return out",
        "        result = (launch(\n            x,\n        ))\n        return result",
    ),
    (
        TRITON,
        "def launch(x):\n    y = torch.empty_like(x)",
        "def launch(x):\n    pass\n    y = torch.empty_like(x)",
    ),
    (CUDA, "// loop", "/* the\n loop */"),
    (CUDA, "  int idx = ", "    int   idx="),
    (CUDA, "#define THREADS 256", "#define   THREADS   256  // a warp's worth"),
    (CUDA, "helper(float a, float b) { return a * b; }", "mul(float p, float q) {\n  return p * q;\n}"),
    (OPENMP, "// go", ""),
    (OPENMP, "int64_t r = 0; r < rows; ++r) out[r] = x[r]", "int64_t q = 0; q < rows; ++q) out[q] = x[q]"),
    (
        OPENMP,
        "{{ float t = x[r]; sum += sq(t); }}",
        "{{\n    float t = x[r];\n    sum += sq(t);  /* why {lib} */\n  }}",
    ),
]
OTHER = [
    (TRITON, "n_rows=x.shape[0], n_cols=x.shape[1]", "n_cols=x.shape[0], n_rows=x.shape[1]"),
    (TRITON, "def softmax_kernel(x_ptr, y_ptr", "def softmax_kernel(y_ptr, x_ptr"),
    (TRITON, 'key=["n_rows"]', 'key=["n_cols"]'),
    (TRITON, "other=-float", "cache=-float"),
    (TRITON, "import torch\n", "import numpy as torch\n"),
    (TRITON, "BLOCK_M: tl.constexpr", "BLOCK_M"),
    (CUDA, "FLT_MAX", "FLT_MIN"),
    (CUDA, "threadIdx.x", "threadIdx.y"),
    (CUDA, "ext.relu_cuda", "ext.relu"),
    (CUDA, 'functions=["relu_cuda"]', 'functions=["relu"]'),
    (CUDA, 'DECL = "torch::Tensor relu_cuda', 'DECL = "torch::Tensor relu_cud'),
    (CUDA, "<float, 4>", "<float, 8>"),
    (CUDA, "return a * b", "return b * a"),
    (CUDA, "-O3", "-O2"),
    (OPENMP, "8*4", "8*8"),
    (OPENMP, "void run", "void walk"),
    (OPENMP, "lib.run", "lib.walk"),
    (OPENMP, "+:sum", "*:sum"),
    (OPENMP, "#ifndef TILE", "#ifndef TILES"),
]


@pytest.mark.parametrize("source", RENAMED, ids=["triton", "cuda", "openmp"])
def test_a_name_that_the_program_gives_may_be_another(source):
    for name in RENAMED[source].split():
        changed = re.sub(rf"\b{name}\b", "another_name", source)
        assert changed != source
        assert program_digest(changed) == program_digest(source), name


@pytest.mark.parametrize(("source", "old", "new"), REWRITTEN)
def test_the_same_in_other_words(source, old, new):
    assert old in source
    assert program_digest(source.replace(old, new)) == program_digest(source)


@pytest.mark.parametrize(("source", "old", "new"), OTHER)
def test_another_program(source, old, new):
    assert old in source
    assert program_digest(source.replace(old, new)) != program_digest(source)


@pytest.mark.parametrize("source", RENAMED, ids=["triton", "cuda", "openmp"])
def test_one_wrong_word_makes_another_program(source):
    """Any single use of a name, replaced by any other word of the file."""
    code = re.sub(r"//[^\n]*", lambda m: "/" * len(m.group()), source)
    words, rng = sorted(set(re.findall(r"[A-Za-z_]\w*", code))), random.Random(0)
    known = program_digest(source)
    tried = 0
    for match in re.finditer(r"[A-Za-z_]\w*", code):
        word = match.group()
        if len(re.findall(rf"\b{word}\b", code)) < 2 or word in ("self", "relu_v1", "acc", "x", "f"):
            continue  # a name that is never used may be any other
        for other in rng.sample(words, 3):
            if other != word:
                tried += 1
                wrong = source[: match.start()] + other + source[match.end() :]
                assert program_digest(wrong) != known, (match.start(), word, other)
    assert tried > 100


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "def f(x):\n    def g(y):\n        return x + y\n    return g\n",
            "def f(a):\n    def g(x):\n        return a + x\n    return g\n",
        ),
        ("f = lambda a: [b for b in a if b]\n", "f = lambda x: [x_ for x_ in x if x_]\n"),
        (
            "def f(x):\n    return x\ndef g(x):\n    return x\n",
            "def f(x):\n    return x\ndef g(y):\n    return y\n",
        ),
        (
            "try:\n    a = 1\nexcept E as e:\n    raise e\n",
            "try:\n    b = 1\nexcept E as err:\n    raise err\n",
        ),
        (
            "n = 0\ndef f():\n    global n\n    n += 1\n",
            "count = 0\ndef g():\n    global count\n    count += 1\n",
        ),
        ("import torch.nn as nn\nnn.Linear\n", "from torch import nn\nnn.Linear\n"),
        ("def k(a, *, size): pass\nk(1, size=2)\n", "def k(b, *, n): pass\nk(1, n=2)\n"),
    ],
)
def test_scopes(one, other):
    assert normal_form(one) == normal_form(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(x):\n    def g(y):\n        return x\n", "def f(x):\n    def g(y):\n        return y\n"),
        ("def f(a, b):\n    return a - b\nf(a=1)\n", "def f(b, a):\n    return b - a\nf(a=1)\n"),
        (
            "class A:\n    def m(self, a, b):\n        return a - b\nA().m(a=1)\n",
            "class A:\n    def m(self, b, a):\n        return b - a\nA().m(a=1)\n",
        ),
        (
            "def f(a, b):\n    return a - b\nh = partial(f, a=1)\n",
            "def f(b, a):\n    return b - a\nh = partial(f, a=1)\n",
        ),
        (
            "def f(a, b):\n    return a - b\nf(**{'a': 1})\n",
            "def f(b, a):\n    return b - a\nf(**{'a': 1})\n",
        ),
        ("a = 1\nb = 2\nx = eval('a')\n", "b = 1\na = 2\nx = eval('a')\n"),
        ("from a import f\nfrom b import f\nf\n", "from b import f\nfrom a import f\nf\n"),
        ("import torch.nn\ntorch\n", "import torch.nn as torch\ntorch\n"),
        ("x = 1\nimport os\n", "import os\nx = 1\n"),
        ("n = 0\ndef f():\n    global n\n    n = 1\n", "n = 0\ndef f():\n    n = 1\n"),
        (
            "class A:\n    x = 1\n    def f(self): return x\n",
            "class A:\n    y = 1\n    def f(self): return x\n",
        ),
        (
            "def mean(x): return x\ndef f(mean): return g(reduction='mean')\n",
            "def mean(x): return x\ndef f(sum): return g(reduction='sum')\n",
        ),
    ],
)
def test_what_only_looks_like_a_renaming(one, other):
    assert normal_form(one) != normal_form(other)


def test_fixing_a_name_that_did_not_match_is_another_program():
    """A function that is called by a wrong name fails; the same file with the right one must be judged."""
    for broken in (OPENMP.replace("void run", "void go"), CUDA.replace("ext.relu_cuda", "ext.relu")):
        assert program_digest(broken) not in {program_digest(OPENMP), program_digest(CUDA)}


def test_values_in_formatted_text_count_where_they_are_not_comments():
    text = 'S = f"""\\n// {a}\\nint n = {b}; float v_{c}; {{ }}\\n"""\n'
    assert program_digest(text) == program_digest(text.replace("// {a}", "// {d}"))
    for name in "bc":
        assert program_digest(text) != program_digest(text.replace("{" + name + "}", "{d}"))


def test_without_names_c_is_only_reformatted():
    assert normalise_c("int  a = b /* c */ ;") == "int a = b ;"


C = 'S = """\n__global__ void k(float* x, float x_t, float w, float b) {\n  {0}\n}\n"""\n'


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x[0] = f(x_t * w);", "x[0] = f(x_t * b);"),
        ("x[0] = f(1, x_t * FLT_MAX);", "x[0] = f(1, x_t * FLT_MIN);"),
        ("x[0] = f(v_t * A, half2 * B);", "x[0] = f(v_t * B, half2 * B);"),
        ("float c = w * A; x[0] = c;", "float c = w * B; x[0] = c;"),
        ("float c = w < A, d = b > c; x[0] = d;", "float c = w < B, d = b > c; x[0] = d;"),
        ("x[0] = w; { float w = b; x[1] = w; }", "{ float w = b; x[1] = w; } x[0] = w;"),
        ("{ float c = 1; } x[0] = c;", "{ float d = 1; } x[0] = d;"),
        ("struct P { float m; float l; } s; x[0] = s.m;", "struct P { float l; float m; } s; x[0] = s.m;"),
        ("auto g = [&](int i) { return i + w; };", "auto g = [&](int i) { return i + b; };"),
        ("return A;", "return B;"),
        ("if (w) goto A; else x[0] = (float) A;", "if (w) goto A; else x[0] = (float) B;"),
        ("switch (1) { case A: x[0] = 1; }", "switch (1) { case B: x[0] = 1; }"),
    ],
)
def test_what_only_looks_like_a_declaration(one, other):
    assert program_digest(C.replace("{0}", one)) != program_digest(C.replace("{0}", other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("__shared__ float tile[32][33]; tile[0][0] = w;", "__shared__ float s[32][33]; s[0][0] = w;"),
        ("extern __shared__ float smem[]; smem[0] = w;", "extern __shared__ float buf[]; buf[0] = w;"),
        ("const auto& v = x[0]; x[1] = v;", "const auto& u = x[0]; x[1] = u;"),
        ("float4 v = load(x); x[0] = v.x;", "float4 u = load(x); x[0] = u.x;"),
        ("auto g = [&](int i) { return i + w; }; g(1);", "auto h = [&](int j) { return j + w; }; h(1);"),
        ("dim3 grid(4, 4); run<<<grid, 1>>>();", "dim3 g(4, 4); run<<<g, 1>>>();"),
        ("std::vector<float> v(4); v[0] = w;", "std::vector<float> u(4); u[0] = w;"),
        ("float a = 1, b2 = 2; x[0] = a + b2;", "float p = 1, q = 2; x[0] = p + q;"),
        ("float* p = x + 1; *p = w;", "float* q = x + 1; *q = w;"),
        ("for (auto v : vs) x[0] += v;", "for (auto u : vs) x[0] += u;"),
    ],
)
def test_declarations_of_many_forms_may_have_other_names(one, other):
    assert program_digest(C.replace("{0}", one)) == program_digest(C.replace("{0}", other))
