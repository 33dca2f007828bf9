"""Executable skills: does one apply to a region, which parameters has it, and the C++ that it makes of the
region.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import kb
from agent.recipe.axes import Incompatible
from agent.recipe.graph import Unsupported, Value
from agent.recipe.kernel import Kernel
from agent.recipe.region import Region
from agent.recipe.stages import Algorithm, specialise
from kb.records import SkillRecord

Params = dict[str, Any]
#: The curated skills; their `_shared` folder holds the macros that templates import.
LIBRARY = Path(kb.__file__).parent / "library" / "skills"


@dataclass(frozen=True)
class Parameter:
    """`values` in order; `moves` maps a move to the value that realises it, or to `up`/`down` in that
    order.
    """

    name: str
    values: tuple[Any, ...]
    default: Any
    moves: Mapping[str, Any] = field(default_factory=dict)

    def moved(self, move: str, current: Any) -> Any | None:
        """The value after a move; None where the move does not concern this parameter or changes nothing."""
        target = self.moves.get(move)
        if target in ("up", "down"):
            position = self.values.index(current) + (1 if target == "up" else -1)
            return self.values[position] if 0 <= position < len(self.values) else None
        return target if target is not None and target != current else None


class ExecutableSkill:
    """A retrieved skill with a template. `kind` says what it implements: `region`, `gemm` or `operator`."""

    def __init__(self, record: SkillRecord) -> None:
        self.record = record
        self.name = record.name
        self.spec = record.spec
        self.kind = str(record.spec.get("kind", "region"))

    @staticmethod
    def executable(record: SkillRecord) -> bool:
        return record.language == "cpp" and bool(record.spec) and (record.root / "kernel.cpp.j2").is_file()

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        return {
            name: Parameter(name, tuple(p["values"]), p["default"], p.get("moves", {}))
            for name, p in self.spec.get("parameters", {}).items()
        }

    def defaults(self) -> Params:
        return {p.name: p.default for p in self.parameters.values()}

    @property
    def specificity(self) -> int:
        applies = self.spec.get("applies", {})
        return int(applies.get("priority", 0)) + len(applies.get("all_of", []))

    def applies(self, region: Region) -> bool:
        """Whether the skill's declared conditions hold for a region."""
        rules = self.spec.get("applies", {})
        return self._rules_hold(
            rules, region.mode, features(region), {"rows": region.rows, "cols": region.cols}
        )

    def applies_to_call(self, value: Value, sizes: Mapping[str, int]) -> bool:
        """Whether the skill implements an ATen call, for its geometry."""
        rules = self.spec.get("applies", {})
        operator = value.fn.split(".")[1] if value.kind == "extern" else ""
        return operator in rules.get("operators", []) and self._rules_hold(rules, "", set(), sizes)

    @staticmethod
    def _rules_hold(rules: Mapping[str, Any], mode: str, has: set[str], sizes: Mapping[str, int]) -> bool:
        return (
            (not mode or mode in rules.get("modes", []))
            and has.issuperset(rules.get("all_of", []))
            and (not rules.get("any_of") or bool(has & set(rules["any_of"])))
            and not has & set(rules.get("none_of", []))
            and all(sizes[k] >= v for k, v in rules.get("min", {}).items() if k in sizes)
            and all(sizes[k] <= v for k, v in rules.get("max", {}).items() if k in sizes)
        )

    def algorithm(self, params: Params) -> Algorithm:
        chosen = {**self.spec.get("algorithm", {}), **params}
        return Algorithm(chosen.get("meanvar", "two-pass"), chosen.get("softmax", "resident"))

    def kernel(
        self, name: str, region: Region, params: Params, row_length: int = 0
    ) -> tuple[Kernel, dict[Value, Value]]:
        """The kernel's text object and the old output of each of its outputs. Raises Incompatible."""
        special, outputs = specialise(region, self.algorithm(params), row_length)
        residency = {**self.spec.get("algorithm", {}), **params}.get("residency", "selective")
        return Kernel(name, special, residency), outputs

    def render(self, **context: Any) -> str:
        """The C++ text. Raises Unsupported when the template cannot express the region."""
        import jinja2

        loader = jinja2.FileSystemLoader([self.record.root, self.record.root.parent, LIBRARY])
        environment = jinja2.Environment(
            loader=loader,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
            autoescape=False,
        )
        try:
            return environment.get_template("kernel.cpp.j2").render(**context)
        except jinja2.TemplateError as error:
            raise Unsupported(f"skill {self.name}: {error}") from error


def features(region: Region) -> set[str]:
    """What a skill's conditions can ask for: reductions, picks, kinds of outputs and of loads."""
    found = {v.fn.split(".")[0] for v in region.reductions()}
    if found:
        found.add("reduction")
    found |= {v.kind for v in region.members if v.kind == "pick"}
    if found and (found & {"meanvar"} or any(region.is_full(v) for v in region.outputs)):
        found.add("normalises")
    found |= {"full-output" if region.is_full(v) else "row-output" for v in region.outputs}
    if len(region.inner) > 1:
        found.add("nested-inner")
    if len(region.outer) > 1:
        found.add("nested-outer")
    buffers = [x.where.buffer for x in region.loads if region.full_load(x) and x.value.kind == "view"]
    if any(buffers.count(b) > 1 for b in buffers) and any(x.where.offset for x in region.loads):
        found.add("gated")
    return found


def applicable(skills: list[ExecutableSkill], region: Region) -> list[ExecutableSkill]:
    """Skills that can render the region, most specific first; retrieval order decides between equals."""
    fitting = [
        s for s in skills if s.kind in ("region", "gemm") and s.applies(region) and _renders(s, region)
    ]
    return sorted(fitting, key=lambda s: -s.specificity)


def _renders(skill: ExecutableSkill, region: Region) -> bool:
    try:
        skill.kernel("probe", region, skill.defaults())
    except (Incompatible, Unsupported):
        return False
    return True


def executable_skills(records: list[SkillRecord]) -> Iterator[ExecutableSkill]:
    for record in records:
        if ExecutableSkill.executable(record):
            yield ExecutableSkill(record)
