"""From a genome and a partition to a candidate file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.recipe import calls, gemm
from agent.recipe.graph import Program, Value
from agent.recipe.module import render, start
from agent.recipe.partition import Partition
from agent.recipe.region import Region
from agent.recipe.skills import ExecutableSkill, Params


@dataclass(frozen=True)
class Choice:
    skill: ExecutableSkill
    params: Params


@dataclass
class Composition:
    source: str
    kernels: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)


def region_key(region: Region) -> str:
    """A region's name in a genome: its first output, which no other region has."""
    return region.outputs[0].name


def compose(
    program: Program,
    partition: Partition,
    choices: Mapping[str, Choice],
    *,
    state: Mapping[str, Mapping[str, tuple[tuple[int, ...], str]]],
    flags: tuple[str, ...],
) -> Composition:
    """The candidate in which every region with a choice is that skill's kernel and the rest are ATen calls.

    Raises Incompatible or Unsupported when a chosen skill cannot render its region.
    """
    body = start(program)
    cpp: list[str] = []
    result = Composition("")
    steps = partition.steps()
    absorbed = {
        product
        for step in steps
        if step.region is not None
        and (choice := choices.get(region_key(step.region)))
        and choice.skill.kind == "gemm"
        for product in [gemm.producer(step.region, partition)]
        if product is not None
    }
    for step in steps:
        if step.value is not None:
            if step.value in absorbed:
                continue
            choice = choices.get(step.value.name)
            if choice is not None:
                cpp.append(calls.emit(step.value, choice.skill, choice.params, body, f"kernel_{len(cpp)}"))
                result.kernels.append(f"{step.value.name}: {choice.skill.name}")
            else:
                body.ref(step.value)
                if step.value.kind == "extern":
                    result.calls.append(step.value.fn)
            continue
        region = step.region
        assert region is not None
        choice = choices.get(region_key(region))
        if choice is None:
            for member in region.members:
                body.ref(member)
            result.calls += [f"{v.fn}" for v in region.members if v.kind != "view"]
            continue
        name = f"kernel_{len(cpp)}"
        product = gemm.producer(region, partition) if choice.skill.kind == "gemm" else None
        length = product.shape[1] if product is not None else 0
        kernel, origin = choice.skill.kernel(name, region, choice.params, length)
        if product is not None:
            text = gemm.emit(product, kernel, origin, skill=choice.skill, params=choice.params, body=body)
        else:
            text = choice.skill.render(k=kernel, p=choice.params)
            arguments = [
                body.allocate(origin[a.access.value]) if a.store else body.memory(a.access.where.buffer)
                for a in kernel.arguments
            ]
            body.lines.append(f"_lib.{name}({', '.join(arguments)}, 0, {kernel.rows})")
        cpp.append(f"// {region_key(region)}: skill {choice.skill.name}, {_listed(choice.params)}\n{text}")
        result.kernels.append(f"{region_key(region)}: {choice.skill.name}")
    notes = [*(f"Kernel {k}" for k in result.kernels), *(f"ATen {c}" for c in dict.fromkeys(result.calls))]
    result.source = render(
        body,
        title="Kernels instantiated from skills for one traced problem.",
        notes=notes,
        cpp="\n".join(cpp),
        flags=flags,
        parameters=state["parameters"],
        buffers=state["buffers"],
    )
    return result


def _listed(params: Params) -> str:
    return ", ".join(f"{k} {v}" for k, v in params.items())


def call_values(program: Program) -> list[Value]:
    """ATen calls that a skill of kind `operator` could replace."""
    return [v for v in program.values if v.kind == "extern"]
