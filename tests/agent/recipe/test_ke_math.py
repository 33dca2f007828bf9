"""The math header against double precision: units in the last place, special values, both forms and all
widths.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from harness.native import Library, load_cpp

REFERENCE: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float]] = {
    "exp": (torch.exp, 1.5),
    "expm1": (torch.expm1, 2.0),
    "log": (torch.log, 1.5),
    "log2": (torch.log2, 3.0),
    "log1p": (torch.log1p, 2.0),
    "tanh": (torch.tanh, 3.0),
    "erf": (torch.erf, 2.0),
    "sigmoid": (torch.sigmoid, 2.5),
    "softplus": (lambda x: torch.logaddexp(x, torch.zeros_like(x)), 3.0),
    "sin": (torch.sin, 3.0),
    "cos": (torch.cos, 3.0),
    "sqrt": (torch.sqrt, 0.6),
    "rsqrt": (torch.rsqrt, 2.0),
    "floor": (torch.floor, 0.0),
    "ceil": (torch.ceil, 0.0),
    "round": (torch.round, 0.0),
    "trunc": (torch.trunc, 0.0),
    "sign": (torch.sign, 0.0),
    "abs": (torch.abs, 0.0),
}
EDGES = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, -1e-40, 1e-30, 88.7, 88.73, 90.0, -87.4]
EDGES += [
    -103.9,
    -105.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1e-8,
    -1e-8,
    3e38,
    -3e38,
    1.5,
    2.5,
    -2.5,
    0.99999994,
    1.0000001,
    4194304.5,
    -4194305.5,
    6291455.5,
    8388607.5,
    -8388606.5,
    8388609.0,
]


def source() -> str:
    text = ["#include <ke_vector.h>"]
    for name in REFERENCE:
        text.append(f"""
extern "C" void vector_{name}(const float* x, float* y, int64_t n) {{
  ke::each<1>(0, n, [&](auto L, int64_t i, auto) {{ L.store(y + i, ke::{name}(L.load(x + i))); }});
}}
extern "C" void scalar_{name}(const float* x, float* y, int64_t n) {{
  for (int64_t i = 0; i < n; ++i) y[i] = ke::{name}(x[i]);
}}""")
    return "\n".join(text)


@pytest.fixture(scope="module", params=["", "-DKE_WIDTH=8", "-DKE_WIDTH=4"])
def functions(request: pytest.FixtureRequest) -> Library:
    extra = (request.param,) if request.param else ()
    return load_cpp(source(), ("-O2", "-march=native", "-fopenmp", "-fno-math-errno", *extra))


def samples() -> torch.Tensor:
    g = torch.Generator().manual_seed(1)
    parts = [torch.randn(20_000, generator=g) * scale for scale in (1e-3, 1.0, 20.0, 100.0)]
    return torch.cat([torch.tensor(EDGES), *parts])


def counted(name: str, x: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Where relative accuracy is claimed: not beside a zero of sin, not where sigmoid is subnormal."""
    if name in ("sin", "cos"):
        return want.abs() > 0.01
    return x > -87.0 if name == "sigmoid" else torch.ones_like(x, dtype=torch.bool)


@pytest.mark.parametrize("form", ["vector", "scalar"])
def test_accuracy(functions: Library, form: str) -> None:
    x = samples()
    for name, (reference, limit) in REFERENCE.items():
        y = torch.empty_like(x)
        getattr(functions, f"{form}_{name}")(x, y, x.numel())
        exact = reference(x.double())
        want = exact.float()
        special = ~torch.isfinite(want)
        same = (y == want) | (y.isnan() & want.isnan())
        assert same[special].all(), (name, x[special & ~same][:5])
        unit = torch.frexp(want.abs().double().clamp(min=1.2e-38))[1].double()
        error = (y.double() - exact).abs() / torch.pow(2.0, unit - 24)
        error = error[~special & counted(name, x, want)]
        assert error.max() <= limit, (name, float(error.max()))


def test_sine_of_large_arguments_uses_exact_reduction(functions: Library) -> None:
    x = torch.tensor([1e5, -3e6, 1e20, 8191.0, 8193.0])
    y = torch.empty_like(x)
    functions.vector_sin(x, y, x.numel())
    torch.testing.assert_close(y, torch.sin(x.double()).float(), rtol=1e-4, atol=1e-6)


def test_maximum_and_minimum_propagate_nan() -> None:
    library = load_cpp(
        """#include <ke_vector.h>
        extern "C" void both(const float* a, const float* b, float* top, float* low, int64_t n) {
          ke::each<1>(0, n, [&](auto L, int64_t i, auto) {
            L.store(top + i, ke::max(L.load(a + i), L.load(b + i)));
            L.store(low + i, ke::min(L.load(a + i), L.load(b + i)));
          });
        }"""
    )
    nan = float("nan")
    a, b = torch.tensor([1.0, nan, 2.0, nan]), torch.tensor([2.0, 1.0, nan, nan])
    top, low = torch.empty(4), torch.empty(4)
    library.both(a, b, top, low, 4)
    torch.testing.assert_close(top, torch.maximum(a, b), equal_nan=True)
    torch.testing.assert_close(low, torch.minimum(a, b), equal_nan=True)


def test_online_softmax_handles_infinities() -> None:
    library = load_cpp(
        """#include <ke_vector.h>
        extern "C" void stats(const float* x, float* out, int64_t n) {
          ke::OnlineSoftmax<2> a;
          ke::each<2>(0, n, [&](auto L, int64_t i, auto u) { a.add(L, u, L.load(x + i)); });
          a.total(out[0], out[1]);
        }"""
    )
    x = torch.randn(1000) * 50
    x[::3] = -float("inf")
    out = torch.empty(2)
    library.stats(x, out, x.numel())
    torch.testing.assert_close(out[0], x.max())
    torch.testing.assert_close(out[0] + out[1].log(), torch.logsumexp(x, 0))


def test_transposed_block_of_any_size() -> None:
    library = load_cpp(
        """#include <ke_vector.h>
        extern "C" void turn(const float* x, float* y, int64_t rows, int64_t cols) {
          ke::transpose_block(x, cols, y, rows, rows, cols);
        }"""
    )
    for rows, cols in ((1, 1), (16, 16), (37, 19), (64, 33)):
        x, y = torch.randn(rows, cols), torch.empty(cols, rows)
        library.turn(x, y, rows, cols)
        assert torch.equal(y, x.t())
