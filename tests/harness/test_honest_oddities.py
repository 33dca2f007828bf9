"""Verdicts on honest oddities, and on dishonest ones that look like them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import Evaluation

Evaluate = Callable[..., Evaluation]
HEADER = "import torch\nfrom torch import nn\n"


def problem(forward: str, inputs: str, init: str = "pass") -> str:
    return (
        f"{HEADER}class Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, {', '.join('xyz'[: inputs.count('torch.r')])}):\n        {forward}\n"
        f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return []\n"
    )


def candidate(forward: str, inputs: int = 1, init: str = "pass", top: str = "") -> str:
    return (
        f"{HEADER}{top}\nclass ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {init}\n    def forward(self, {', '.join('xyz'[:inputs])}):\n        {forward}\n"
    )


def rules(result: Evaluation) -> set[str]:
    return {flag["rule"] for flag in result.flags}


def test_square_problem_may_rely_on_being_square(evaluate: Evaluate) -> None:
    """Half of one argument alone is another problem: what a square kernel makes of it is no evidence."""
    source = problem("return x @ y", "torch.randn(32, 32), torch.randn(32, 32)")
    forward = "n = y.shape[0]; return (x.reshape(-1)[: n * n].reshape(-1, n) @ y)[:n].clone()"
    result = evaluate(source, candidate(forward, 2))
    assert result.status == "correct", result.reason


def test_input_may_be_left_as_it_is(evaluate: Evaluate) -> None:
    source = problem("x.relu_(); return x * 2", "torch.randn(64)")
    result = evaluate(source, candidate("return x.relu() * 2"), timing_budget_s=0.3)
    assert result.status == "correct", result.reason
    assert "input-not-updated" in rules(result)
    assert evaluate(source, candidate("y = x.relu() * 2; x.zero_(); return y")).status == "incorrect"


@pytest.mark.parametrize("base", ["tuple", "list"])
def test_a_container_that_computes_when_it_is_read(evaluate: Evaluate, base: str) -> None:
    source = problem(f"return {base}((x * 2, x + 1))", "torch.randn(64)")
    top = f"class Later({base}):\n    def __iter__(self):\n        return iter(self.work())\n"
    lazy = f"r = Later(({'0, 0'})); r.work = lambda: (x * 2, x + 1); return r"
    result = evaluate(source, candidate(lazy, top=top))
    assert result.status == "incorrect"
    assert "Later" in result.reason


def test_constant_weights_may_not_be_left_out_behind_another_parameter(evaluate: Evaluate) -> None:
    source = problem("return self.n(x)", "torch.randn(8, 64)", "self.n = nn.LayerNorm(64)")
    forward = (
        "d = x - x.mean(-1, keepdim=True); return d * torch.rsqrt((d * d).mean(-1, keepdim=True) + 1e-5)"
    )
    result = evaluate(source, candidate(forward, init="self.pad = nn.Parameter(torch.zeros(1))"))
    assert result.status == "incorrect"
    assert "n.weight" in result.reason
    renamed = candidate(
        "return nn.functional.layer_norm(x, (64,), self.g, self.b)",
        init="self.b, self.g, self.k = (nn.Parameter(torch.full(s, v)) for s, v in "
        "(((64,), 0.0), ((64,), 1.0), ((1,), 1.0)))",
    )
    assert evaluate(source, renamed).status == "correct"


NESTED = problem(
    "y = x * self.w; return {'b': y, 'a': {'n': 2, 'z': y.sum(-1), 'k': y * y}}, [{'q': x - 1, 'p': x + 1}]",
    "torch.randn(8, 16)",
    "self.w = nn.Parameter(torch.ones(16))",
)
TURNED = (
    "y = x * self.w; return {{'a': {{'k': {k}, 'z': y.sum(-1), 'n': 2}}, 'b': {b}}}, "
    "[{{'p': x + 1, 'q': x - 1}}]"
)


@pytest.mark.parametrize("backward", [False, True])
def test_dictionaries_are_equal_in_any_order(evaluate: Evaluate, backward: bool) -> None:
    """Also where gradients are asked for: cotangents belong to outputs by name."""
    source = NESTED + f"META = {{'backward': {backward}}}\n"
    weight = "self.w = nn.Parameter(torch.ones(16))"
    result = evaluate(source, candidate(TURNED.format(k="y * y", b="y"), init=weight))
    assert result.status == "correct", result.reason
    result = evaluate(source, candidate(TURNED.format(k="y", b="y * y"), init=weight))
    assert (result.status, result.reason.startswith("output 0")) == ("incorrect", True), result.reason


@pytest.mark.parametrize(
    "forward",
    [
        "return {'b': x * 2}",
        "return {'b': x * 2, 'a': x + 1, 'c': x}",
        "return {'b': x * 2, 'A': x + 1}",
        "return [x * 2, x + 1]",
    ],
)
def test_keys_must_be_the_same(evaluate: Evaluate, forward: str) -> None:
    source = problem("return {'b': x * 2, 'a': x + 1}", "torch.randn(8, 16)")
    result = evaluate(source, candidate(forward))
    assert (result.status, "structure" in result.reason) == ("incorrect", True), result.reason


def test_order_matters_in_lists(evaluate: Evaluate) -> None:
    source = problem("return [x * 2, x + 1]", "torch.randn(8, 16)")
    assert evaluate(source, candidate("return [x + 1, x * 2]")).status == "incorrect"


def test_a_key_that_computes_when_it_is_compared(evaluate: Evaluate) -> None:
    source = problem("return {'b': x * 2}", "torch.randn(8, 16)")
    top = (
        "class Key(str):\n    __hash__ = str.__hash__\n    def __eq__(self, other):\n"
        "        if self.work:\n            self.work.pop()()\n        return str.__eq__(self, other)\n"
    )
    late = "y = torch.empty_like(x); k = Key('b'); k.work = [lambda: y.copy_(x * 2)]; return {k: y}"
    result = evaluate(source, candidate(late, top=top))
    assert result.status == "incorrect", result.reason
