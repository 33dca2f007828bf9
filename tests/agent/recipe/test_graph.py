"""Lowering: the traced graph as maps, reductions and views computes what the reference computes; no kernels
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import Parameter, signature
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from recipe_support import Apply, compare, composed, facts_of, run

from agent.recipe.graph import Unsupported
from agent.recipe.lowering import HANDLERS, build
from harness.worker.model import ProblemFacts

torch.manual_seed(0)
t = torch.randn


def wave(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * torch.cos(x) + torch.floor(x) - torch.sign(x) + torch.ceil(x) * torch.trunc(x)


GRAPHS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "activations": (
        lambda x: (
            F.gelu(x, approximate="tanh")
            + F.mish(x)
            + F.softplus(x, 2.0)
            + F.elu(x)
            + F.selu(x)
            + F.hardswish(x),
            F.leaky_relu(x) + F.hardtanh(x) + F.logsigmoid(x) + F.celu(x) + F.relu6(x) + F.hardsigmoid(x),
        ),
        [t(7, 9) * 4],
    ),
    "arithmetic": (
        lambda x, y: (wave(x), torch.lerp(x, y, 0.3), torch.addcmul(x, x, y, value=2.0), x.pow(3) / y.pow(2)),
        [t(5, 6), t(5, 6) + 3],
    ),
    "powers": (
        lambda x: (x**0.5, x**-0.5, x**1.7, 2**x, x.reciprocal(), torch.rsqrt(x)),
        [torch.rand(33) + 0.1],
    ),
    "statistics": (
        lambda x: (
            x.std(-1),
            x.var((0, 2), keepdim=True),
            torch.var_mean(x, 1),
            x.mean(),
            x.norm(dim=1),
            x.prod(2),
        ),
        [t(4, 5, 6)],
    ),
    "masks": (
        lambda x, m: (
            x.masked_fill(m, -1.0),
            (x > 0) & ~m,
            torch.where(m, x, 0.0),
            (x > 0).float(),
            x.isnan(),
        ),
        [t(5, 5), torch.rand(5, 5) > 0.5],
    ),
    "views": (
        lambda x: (
            x.permute(2, 0, 1).reshape(6, 20) + 1,
            x[:, 1:4:2] * 2,
            x.unsqueeze(1).expand(4, 3, 5, 6) - 1,
            x[2],
        ),
        [t(4, 5, 6)],
    ),
    "losses": (
        lambda x, y: (
            F.mse_loss(x, y),
            F.l1_loss(x, y),
            F.huber_loss(x, y),
            F.binary_cross_entropy_with_logits(x, y.sigmoid()),
            F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
            F.cosine_similarity(x, y),
        ),
        [t(6, 11), t(6, 11)],
    ),
    "cross entropy": (
        lambda x, i: F.cross_entropy(x, i, label_smoothing=0.1, ignore_index=3),
        [t(6, 11), torch.arange(6)],
    ),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [t(2, 3, 7, 8), t(2, 3, 7, 8), t(2, 3, 7, 8)],
    ),
    "clamps": (
        lambda x: (
            F.hardtanh(x, -1, 1) + 1,
            F.hardtanh(x, 0, 1),
            F.hardtanh(x, -1, 0.5),
            F.relu6(x) * 2,
            x.clamp(max=0.5) + x.clamp(min=-0.5),
            F.hardshrink(x) + F.softshrink(x) + F.threshold(x, 0.1, 20),
        ),
        [t(7, 9) * 4],
    ),
    "numbers as conditions": (
        lambda x, i: (
            torch.logical_and(x, i) | torch.logical_not(x),
            torch.logical_xor(i, x > 0.5).float(),
            (i > 0.5).float() + (i * 0.5),
            i & 3,
            F.relu(i - 2) + i.clamp(1, 2),
        ),
        [torch.tensor([0.0, -0.5, 3.0, float("nan")]), torch.arange(4)],
    ),
    "negative numbers": (lambda x: ((-2) ** x, -1.5 - x, x * -3), [torch.arange(5.0)]),
    "scalar tensors": (
        lambda x: (
            torch.scalar_tensor(2.0).expand(3) + x.sum(),
            torch.scalar_tensor(2.0).to(torch.int64),
            torch.softmax(x.sum(), 0) + torch.scalar_tensor(1.5).unsqueeze(0),
            x * torch.scalar_tensor(3.0),
        ),
        [t(3)],
    ),
    "nested result": (lambda x: {"a": [x + 1, (x * 2,)], "b": x.sum()}, [t(3, 4)]),
    "unknown operators": (
        lambda x: torch.sort(F.interpolate(x, scale_factor=2.0) + 1, -1)[0] * 2 + torch.flip(x, [2]).sum(),
        [t(1, 2, 8)],
    ),
    "integers": (lambda x: (x // 2 + x % 3).float() * 0.5, [torch.arange(40).reshape(8, 5)]),
    "double precision": (lambda x: torch.softmax(x * 2, -1), [t(4, 5).double()]),
}


def _schemas() -> Iterator[tuple[str, Any, list[Parameter]]]:
    import agent.recipe.operators
    import agent.recipe.operators_reduce  # noqa: F401

    for name, handler in HANDLERS.items():
        op, _, overload = name.partition(".")
        packet = getattr(torch.ops.aten, op)
        for one in [overload] if overload else packet.overloads():
            if "out" not in one and (overload or f"{op}.{one}" not in HANDLERS):
                yield name, getattr(packet, one)._schema, list(signature(handler).parameters.values())[1:]


def test_defaults_of_lowerings_are_those_of_the_schemas() -> None:
    """A trace leaves out trailing arguments that have their default value."""
    for name, schema, parameters in _schemas():
        named = {p.name: p for p in parameters}
        for position, argument in enumerate(schema.arguments):
            found = named.get(argument.name) if argument.kwarg_only else parameters[position : position + 1]
            if not argument.has_default_value() or not found:
                continue
            parameter = found if isinstance(found, Parameter) else found[0]
            if parameter.kind is not Parameter.VAR_KEYWORD:
                assert (parameter.default or None) == (argument.default_value or None), (name, argument.name)


@pytest.mark.parametrize("name", GRAPHS)
def test_without_skills_the_graph_runs_as_aten_calls(name: str) -> None:
    function, inputs = GRAPHS[name]
    result = composed(Apply(function), inputs, [])
    assert not result.kernels
    compare(Apply(function), inputs, result.source, tolerance=1e-5)


class WithConstant(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.tensor([1.0, 2.0, float("inf")])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.minimum(x * 2, self.table)


def test_constants_travel_with_the_candidate() -> None:
    model, inputs = WithConstant(), [t(4, 3)]
    result = composed(model, inputs, ["elementwise-chain"])
    assert result.kernels
    (got,) = run(result.source, model, inputs)
    torch.testing.assert_close(got, model(*inputs))


class Network(torch.nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            torch.nn.Conv2d(3, 8, 3),
            torch.nn.BatchNorm2d(8),
            torch.nn.SiLU(),
            torch.nn.ConvTranspose2d(8, 4, 3),
        )


def test_numbered_modules_keep_their_state_dict_names() -> None:
    model, inputs = Network().eval(), [t(2, 3, 9, 9)]
    result = composed(model, inputs, ["elementwise-chain"])
    assert set(result.calls) == {"aten.convolution.default"}
    assert "0.weight" in result.source
    compare(model, inputs, result.source)


def test_batch_norm_in_training_uses_the_batch() -> None:
    model, inputs = Network().train(), [t(2, 3, 9, 9)]
    result = composed(model, inputs, ["elementwise-chain", "group-instance-normalization"])
    assert any("group-instance-normalization" in k for k in result.kernels)
    compare(model, inputs, result.source)


def test_a_failed_trace_is_unsupported() -> None:
    facts = ProblemFacts("p", [], [], [], [], [], [], trace_error="data-dependent control flow")
    with pytest.raises(Unsupported, match="data-dependent"):
        build(facts)


def test_dead_and_repeated_work_is_removed() -> None:
    def wasteful(x: torch.Tensor) -> torch.Tensor:
        torch.exp(x)
        return torch.tanh(x) * torch.tanh(x)

    program = build(facts_of(Apply(wasteful), [t(3, 3)]))
    assert [v.fn for v in program.values if v.kind == "map"] == ["tanh", "mul"]
