"""Backward problems: gradients of inputs and parameters are compared, and timed with forward."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import Evaluation, LocalExecutor

Evaluate = Callable[..., Evaluation]

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(dim))
        self.unused = torch.nn.Parameter(torch.ones(3))
    def forward(self, x, index):
        return torch.tanh(x[index] * self.weight), index + 1
def get_inputs():
    return [torch.randn(40, 24), torch.randint(0, 40, (64,))]
def get_init_inputs():
    return [24]
META = {"backward": True}
"""

CANDIDATE = """
import torch
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, index):
        y = torch.tanh(x[index] * weight)
        ctx.save_for_backward(x, weight, index, y)
        return y
    @staticmethod
    def backward(ctx, given):
        x, weight, index, y = ctx.saved_tensors
        inner = given * (1 - y * y)
        grad_x = torch.zeros_like(x).index_add_(0, index, inner * weight)
        grad_weight = (inner * x[index]).sum(0)
        return grad_x, grad_weight, None
class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(dim))
        self.unused = torch.nn.Parameter(torch.ones(3))
    def forward(self, x, index):
        return Function.apply(x, self.weight, index), index + 1
"""


def test_custom_gradients_are_compared_and_timed(evaluate: Evaluate) -> None:
    result = evaluate(PROBLEM, CANDIDATE, timing_budget_s=0.4)
    assert result.status == "correct", result.reason
    assert result.timed
    assert result.correctness is not None
    assert result.correctness["timed_checks"] > 5
    assert 0 < result.correctness["err_vs_fp64"] < 1e-6


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("(1 - y * y)", "(1 - y)", "gradient of"),
        ("inner * weight)", "inner)", "gradient of input 0"),
        (".sum(0)", ".mean(0)", "gradient of weight"),
        ("y = torch.tanh(x[index] * weight)", "y = torch.tanh(x[index])", "output 0"),
        (
            "Function.apply(x, self.weight, index), ",
            "Function.apply(x, self.weight, index).detach(), ",
            "no gradient",
        ),
        ("grad_weight = (inner * x[index]).sum(0)", "grad_weight = None", "gradient of weight"),
    ],
)
def test_wrong_gradients(evaluate: Evaluate, right: str, wrong: str, words: str) -> None:
    result = evaluate(PROBLEM, CANDIDATE.replace(right, wrong))
    assert (result.status, words in result.reason) in (("incorrect", True), ("runtime_error", True)), (
        result.reason
    )


def test_parameters_must_be_there(evaluate: Evaluate) -> None:
    result = evaluate(PROBLEM, CANDIDATE.replace("self.unused = torch.nn.Parameter(torch.ones(3))", "pass"))
    assert result.status == "incorrect"
    assert "no unused of the reference" in result.reason


def test_gradients_at_other_sizes(evaluate: Evaluate) -> None:
    """Cotangents follow the outputs' sizes; a gradient that is right for one size only is found."""
    baked = CANDIDATE.replace("(inner * x[index]).sum(0)", "(inner * x[index]).mean(0) * 64")
    result = evaluate(PROBLEM, baked)
    assert result.status == "rejected", result.reason
    assert "gradient of weight" in result.reason


def test_a_graph_of_forward_is_no_graph_of_the_problem(executor: LocalExecutor) -> None:
    assert "gradients" in (executor.describe(PROBLEM).trace_error or "")
