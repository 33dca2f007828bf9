"""`problem check`: what would pass for a reference's output without being it is found and named."""

from __future__ import annotations

import pytest

from harness import LocalExecutor
from harness.errors import ProblemError

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(32))
        self.calls = 0
    def forward(self, x):
        {body}
def get_inputs():
    return {inputs}
def get_init_inputs():
    return []
"""


def problem(body: str, inputs: str = "[torch.randn(64, 32)]") -> str:
    return PROBLEM.format(body=body, inputs=inputs)


def rules(executor: LocalExecutor, source: str) -> dict[str, str]:
    return {f["rule"]: f["severity"] for f in executor.check(source)}


def test_a_sound_problem_has_no_findings(executor: LocalExecutor) -> None:
    assert executor.check(problem("return torch.softmax(x * self.weight, -1)")) == []


@pytest.mark.parametrize(
    ("source", "rule", "severity"),
    [
        (problem("return x * self.weight * 1e-7 + 1"), "constant-passes", "warning"),
        (problem("return (x * self.weight).relu()", "[-torch.rand(64, 32)]"), "zeros-pass", "info"),
        (problem("return (x + 0 * self.weight).relu()", "[torch.rand(64, 32)]"), "identity-passes", "info"),
        (
            problem("return (x * self.weight).square().mean(0) * 1e-7 + torch.arange(32)"),
            "another-inputs-output-passes",
            "warning",
        ),
        (problem("return torch.ones(3) + 0 * x.sum()"), "constant-output", "warning"),
        (
            problem("import os; return x + torch.rand(()) + os.urandom(1)[0] + os.urandom(1)[0] / 256"),
            "random-output",
            "warning",
        ),
        (problem("self.calls += 1; return x + self.calls"), "stateful-output", "warning"),
        (problem("return x.sum(0)"), "weights-do-not-matter", "warning"),
        (problem("return x.log() * self.weight"), "non-finite-output", "info"),
        (problem("x *= 2; return x * self.weight"), "mutates-inputs", "info"),
    ],
)
def test_weakness(executor: LocalExecutor, source: str, rule: str, severity: str) -> None:
    assert rules(executor, source).get(rule) == severity


def test_one_weight_or_input_that_does_not_matter(executor: LocalExecutor) -> None:
    source = problem("return self.norm(self.lin(x)) * self.weight", "[torch.randn(64, 32), torch.randn(4)]")
    source = source.replace("forward(self, x)", "forward(self, x, y)").replace(
        "self.calls = 0",
        "self.lin, self.norm = torch.nn.Linear(32, 32), torch.nn.BatchNorm1d(32, affine=False)",
    )
    found = {f["rule"]: f["detail"] for f in executor.check(source)}
    assert "input 1" in found["input-does-not-matter"]
    assert "lin.bias" in found["weight-does-not-matter"]
    assert found["mutates-state"].endswith("norm.running_mean, norm.running_var, norm.num_batches_tracked")


def test_rounding_is_no_randomness(executor: LocalExecutor) -> None:
    """Atomic additions on a device sum in another order on each call."""
    order = "x[:, torch.randperm(32, generator=GENERATOR)]"
    source = problem(f"return (x * self.weight, {order}.sum(1))[1]") + "\nGENERATOR = torch.Generator()\n"
    assert "random-output" not in (found := rules(executor, source))
    assert found["rounding-noise"] == "info"


def test_invalid_problem(executor: LocalExecutor) -> None:
    with pytest.raises(ProblemError, match="missing"):
        executor.check(problem("return x.missing"))


def test_inputs_that_are_not_contiguous(executor: LocalExecutor) -> None:
    source = problem("return torch.softmax(x * self.weight, -1)", "[torch.randn(64, 64)[:, ::2]]")
    assert executor.check(source) == []
