"""Tracing without the harness's measurements, and running a candidate in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from agent.recipe.compose import Choice, compose
from agent.recipe.library import record
from agent.recipe.skills import ExecutableSkill
from agent.recipe.workbench import Workbench
from harness.worker.describe import Tracing, spec
from harness.worker.model import ProblemFacts
from harness.worker.values import pack, skeleton

QUICK_FLAGS = ("-O1", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math")


class Apply(torch.nn.Module):
    """A module that is one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def facts_of(model: torch.nn.Module, inputs: list[torch.Tensor]) -> ProblemFacts:
    """The facts of a model in this process, without the harness's measurements."""
    specs = [spec(f"x{i}", t) for i, t in enumerate(inputs)]
    with torch.no_grad():
        structure, outputs = pack(model(*inputs))
    return ProblemFacts(
        name="test",
        inputs=specs,
        parameters=[spec(n, t) for n, t in model.named_parameters()],
        buffers=[spec(n, t) for n, t in model.named_buffers()],
        outputs=[spec(f"output{i}", t) for i, t in enumerate(outputs)],
        output_structure=skeleton(structure),
        input_structure=pack(list(inputs))[0],
        argument_names=[s.name for s in specs],
        **Tracing(model, inputs, specs).graph(),
    )


def run(source: str, model: torch.nn.Module, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of a candidate file that has the model's weights."""
    space: dict[str, Any] = {}
    exec(compile(source, "candidate.py", "exec"), space)
    candidate = space["ModelNew"]()
    candidate.load_state_dict({**dict(model.named_parameters()), **dict(model.named_buffers())}, strict=True)
    return pack(candidate(*inputs))[1]


def expected(model: torch.nn.Module, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    with torch.no_grad():
        return pack(model(*inputs))[1]


def compare(model: torch.nn.Module, inputs: list[torch.Tensor], source: str, tolerance: float = 2e-5) -> None:
    for got, want in zip(run(source, model, inputs), expected(model, inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def composed(
    model: torch.nn.Module,
    inputs: list[torch.Tensor],
    skills: list[str],
    variant: int = 0,
    cuts: tuple[str, ...] = (),
) -> Any:
    """A composition from the named skills in order of preference, with the variant-th value of each
    parameter.
    """
    bench = Workbench(facts_of(model, inputs), [ExecutableSkill(record(n)) for n in skills])
    genome = bench.default(cuts)
    choices = {}
    for key, options in bench.options(cuts).items():
        if genome.genes[key].skill is not None:
            skill = min(options, key=lambda s: skills.index(s.name))
            params = {p.name: p.values[variant % len(p.values)] for p in skill.parameters.values()}
            choices[key] = Choice(skill, params)
    return compose(bench.program, bench.partition(cuts), choices, state=bench.state, flags=QUICK_FLAGS)
