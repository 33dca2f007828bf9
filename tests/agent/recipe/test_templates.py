"""Every template compiles and is right for every value of every parameter, on sizes that no vector
divides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from recipe_support import Apply, compare, composed

from agent.recipe.library import names, record
from agent.recipe.skills import ExecutableSkill

torch.manual_seed(0)
t = torch.randn


def swiglu(x: torch.Tensor) -> torch.Tensor:
    gate, value = x.chunk(2, -1)
    return F.silu(gate) * value


def channels(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(1, keepdim=True)) * torch.rsqrt(x.var(1, keepdim=True, correction=0) + 1e-5)


def each(function: Callable[..., torch.Tensor]) -> Callable[..., tuple[torch.Tensor, ...]]:
    """One kernel for every input, all in one source."""
    return lambda *inputs: tuple(function(x) for x in inputs)


def indices(rows: int, classes: int) -> torch.Tensor:
    return torch.randint(0, classes, (rows,))


ROWS = [t(1, 37), t(5, 1003), t(33, 2), t(40, 3, 17), t(1003, 5).t()]
CASES: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "elementwise-chain": (
        each(lambda x: F.gelu(x * 1.5 + x[:1]) - torch.where(x > 0, x, torch.exp(x))),
        [t(37, 1), t(2, 1003), t(3, 5, 77)[:, 1:], t(16 * 1100), t(19, 40).t()],
    ),
    "gated-activation": (each(swiglu), [t(3, 2006), t(1, 6), t(7, 5, 34)]),
    "row-reduction": (
        each(lambda x: torch.exp(x).sum(-1) + (x * x).amax(-1) - x.amin(-1)),
        ROWS,
    ),
    "row-normalization-two-pass": (each(lambda x: F.layer_norm(F.gelu(x), x.shape[-1:]) * 2), ROWS),
    "row-normalization-single-pass": (
        each(lambda x: F.layer_norm(x + 10, x.shape[-1:]) + F.normalize(x, dim=-1)),
        [ROWS[1], *ROWS[3:]],  # two nearly equal numbers would be ill-conditioned for any algorithm
    ),
    "group-instance-normalization": (
        each(lambda x: F.silu(F.group_norm(x, 2)) + x),
        [t(2, 4, 5, 7), t(1, 2, 19), t(9, 6, 3, 33)],
    ),
    "softmax-resident": (each(lambda x: torch.softmax(x * 3, -1) + 1), ROWS),
    "softmax-online": (each(lambda x: torch.log_softmax(x * 30, -1)), ROWS),
    "cross-entropy": (
        lambda x, i, y, j: (F.cross_entropy(x, i), F.cross_entropy(y, j, reduction="none")),
        [t(33, 1003), indices(33, 1003), t(2, 17), indices(2, 17)],
    ),
    "strided-reduction": (
        lambda x, y, z: (torch.softmax(x, 1), channels(y), z.sum(0), z.amax(0), torch.softmax(y, 0)),
        [t(3, 37, 45), t(9, 5, 7, 3), t(130, 1)],
    ),
    "full-reduction-loss": (
        lambda x, y, z: (F.mse_loss(x, y), F.smooth_l1_loss(x, y), z.max(), z.std(), z.sum()),
        [t(97, 101), t(97, 101), t(21)],
    ),
    "blocked-transpose": (
        each(lambda x: (x.transpose(-1, -2) * 2 + 1).contiguous()),
        [t(37, 150), t(3, 16, 32), t(2, 70, 3)],
    ),
    "gemm-epilogue-blocked": (
        lambda x, w, y, v, b: (F.gelu(x @ w), torch.softmax(torch.addmm(b, y, v), -1)),
        [t(70, 33), t(33, 50), t(9, 100), t(100, 70), t(70)],
    ),
    "gemm-epilogue-own": (
        lambda x, w, y, v, b: (F.gelu(x @ w), F.layer_norm(F.linear(y, v, b), (70,))),
        [t(70, 33), t(33, 50), t(9, 600), t(70, 600) * 0.1, t(70)],
    ),
    "cumulative-scan": (
        lambda x, y: (torch.cumsum(x, -1), torch.cumprod(y, 1), torch.cumsum(y, 0), torch.cumprod(y, -1)),
        [t(3, 1003), torch.rand(5, 17, 33) + 0.5],
    ),
    "window-pooling": (
        lambda x, y: (
            F.avg_pool2d(x, 2),
            F.max_pool2d(y, 3, 2, 1),
            F.avg_pool2d(y, (3, 2), (1, 3), (1, 0)),
            F.max_pool2d(x, (2, 3)),
        ),
        [t(2, 3, 17, 37), t(1, 2, 9, 40)],
    ),
}
VARIANTS = [
    (name, variant)
    for name in names()
    for variant in range(max(len(p.values) for p in ExecutableSkill(record(name)).parameters.values()))
]


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_every_parameter_value_on_odd_sizes(name: str, variant: int) -> None:
    function, inputs = CASES[name]
    model = Apply(function)
    result = composed(model, inputs, [name], variant)
    assert result.kernels, "the skill applied to nothing"
    assert all(k.endswith(f": {name}") for k in result.kernels)
    compare(model, inputs, result.source)


@pytest.mark.parametrize("name", ["row-normalization-single-pass", "softmax-online", "strided-reduction"])
def test_not_a_number_and_infinity_come_through(name: str) -> None:
    x = t(6, 50)
    x[1, 7], x[2, 3], x[3] = float("nan"), float("inf"), -float("inf")
    functions = {
        "row-normalization-single-pass": lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True)),
        "softmax-online": lambda x: torch.softmax(x, -1),
        "strided-reduction": lambda x: x.amax(0),
    }
    model = Apply(functions[name])
    source = composed(model, [x], [name]).source
    from recipe_support import expected, run

    for got, want in zip(run(source, model, [x]), expected(model, [x]), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-5, atol=1e-5)


def test_target_outside_the_classes_reads_no_foreign_memory() -> None:
    x, index = t(4, 10), torch.tensor([1, 2, 3, 4])
    model = Apply(lambda x, i: F.cross_entropy(x, i, reduction="none"))
    source = composed(model, [x, index], ["cross-entropy"]).source
    from recipe_support import run

    (loss,) = run(source, model, [x, torch.tensor([1, 10**12, -5, 4])])
    assert loss.isnan().tolist() == [False, True, True, False]


def test_other_shapes_are_refused_with_a_clear_message() -> None:
    model = Apply(lambda x: torch.softmax(x, -1) * 2)
    source = composed(model, [t(4, 10)], ["softmax-resident"]).source
    from recipe_support import run

    with pytest.raises(ValueError, match="specialised for"):
        run(source, model, [t(4, 11)])
