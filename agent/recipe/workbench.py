"""One traced problem and the skills at hand: default compositions, neighbours of a genome, and their
source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from agent.recipe import calls, gemm
from agent.recipe.compose import Choice, Composition, call_values, compose, region_key
from agent.recipe.expression import COST
from agent.recipe.genome import FLAGS, Change, Gene, Genome, flag_changes
from agent.recipe.graph import Program
from agent.recipe.lowering import build
from agent.recipe.partition import Partition
from agent.recipe.region import Region
from agent.recipe.skills import ExecutableSkill, applicable
from harness.worker.model import ProblemFacts

#: Library or own product: what a change between these kinds of skills is called.
_PRODUCT_MOVES = {"own": "own-gemm", "library": "library-call"}


class Workbench:
    """Raises Unsupported from `__init__` when the problem has no usable graph."""

    def __init__(self, facts: ProblemFacts, skills: Sequence[ExecutableSkill]) -> None:
        self.facts = facts
        self.skills = list(skills)
        self.program: Program = build(facts)
        self._partitions: dict[tuple[str, ...], Partition] = {}
        self._options: dict[tuple[str, ...], dict[str, list[ExecutableSkill]]] = {}

    @cached_property
    def state(self) -> Mapping[str, Mapping[str, tuple[tuple[int, ...], str]]]:
        return {
            "parameters": {s.name: (s.shape, s.dtype) for s in self.facts.parameters},
            "buffers": {s.name: (s.shape, s.dtype) for s in self.facts.buffers},
        }

    def partition(self, cuts: tuple[str, ...]) -> Partition:
        if cuts not in self._partitions:
            self._partitions[cuts] = Partition(self.program, cuts)
        return self._partitions[cuts]

    def options(self, cuts: tuple[str, ...]) -> dict[str, list[ExecutableSkill]]:
        """Applicable skills per region and per ATen call, best first."""
        if cuts not in self._options:
            partition = self.partition(cuts)
            table: dict[str, list[ExecutableSkill]] = {}
            for region in partition.regions():
                fitting = applicable(self.skills, region)
                has_product = gemm.producer(region, partition) is not None
                table[region_key(region)] = [s for s in fitting if s.kind != "gemm" or has_product]
            for value in call_values(self.program):
                fitting = [s for s in self.skills if calls.matches(s, value, partition.users[value])]
                if fitting:
                    table[value.name] = fitting
            self._options[cuts] = table
        return self._options[cuts]

    def weights(self, cuts: tuple[str, ...]) -> dict[str, float]:
        """A rough cost per region, to spend mutations where the time goes: elements moved and arithmetic."""
        table = {region_key(r): _weight(r) for r in self.partition(cuts).regions()}
        for value in call_values(self.program):
            table.setdefault(value.name, float(value.numel + sum(o.numel for o in value.operands())))
        return table

    def default(self, cuts: tuple[str, ...] = ()) -> Genome:
        """Every region by its most specific skill with default parameters."""
        return Genome({k: self._gene(s[0] if s else None) for k, s in self.options(cuts).items()}, cuts)

    @staticmethod
    def _gene(skill: ExecutableSkill | None) -> Gene:
        return Gene(skill.name, skill.defaults()) if skill else Gene(None)

    def completed(self, genome: Genome) -> Genome:
        """The genome with a gene for each region of its partition and full parameters; unknown skills give
        way.
        """
        genes: dict[str, Gene] = {}
        for key, skills in self.options(genome.cuts).items():
            gene = genome.genes.get(key)
            skill = next((s for s in skills if gene is not None and s.name == gene.skill), None)
            if gene is not None and gene.skill is None:
                genes[key] = gene
            elif gene is None or skill is None:
                genes[key] = self._gene(skills[0] if skills else None)
            else:
                known = {k: v for k, v in gene.params.items() if k in skill.parameters}
                genes[key] = Gene(skill.name, {**skill.defaults(), **known})
        return replace(genome, genes=genes)

    def compose(self, genome: Genome) -> Composition:
        """Raises Incompatible or Unsupported when a skill cannot render its region after all."""
        options = self.options(genome.cuts)
        choices = {
            key: Choice(next(s for s in options[key] if s.name == gene.skill), gene.params)
            for key, gene in genome.genes.items()
            if gene.skill is not None
        }
        partition = self.partition(genome.cuts)
        return compose(self.program, partition, choices, state=self.state, flags=FLAGS[genome.flags])

    def neighbours(self, genome: Genome) -> Iterator[Change]:
        """Every single change, heaviest region first; changes to avoid are left out."""
        options, weights = self.options(genome.cuts), self.weights(genome.cuts)
        avoid = set(genome.avoid)
        for key in sorted(options, key=lambda k: (-weights.get(k, 0.0), k)):
            for change in self._region_changes(key, options[key], genome.genes[key]):
                if change.mark not in avoid:
                    yield change
        for change in (*self._cut_changes(genome), *flag_changes(genome)):
            if change.mark not in avoid:
                yield change

    def _region_changes(self, key: str, skills: list[ExecutableSkill], gene: Gene) -> Iterator[Change]:
        current = next((s for s in skills if s.name == gene.skill), None)
        for parameter in current.parameters.values() if current else ():
            value = gene.params[parameter.name]
            moves = {parameter.moved(m, value): m for m in parameter.moves}
            for other in parameter.values:
                if other != value:
                    yield Change(f"{key}.{parameter.name}", value, other, moves.get(other))
        for skill in skills:
            if skill is not current:
                realised: list[str | None] = list(_skill_moves(skill)) or [None]
                for move in realised:
                    yield Change(f"{key}.skill", gene.skill, skill.name, move)
        if current is not None:
            yield Change(f"{key}.skill", gene.skill, None, "library-call")

    def _cut_changes(self, genome: Genome) -> Iterator[Change]:
        for name in genome.cuts:
            yield Change("cuts", list(genome.cuts), [c for c in genome.cuts if c != name], "fuse-more")
        for name in self.partition(genome.cuts).boundaries()[:12]:
            yield Change("cuts", list(genome.cuts), sorted({*genome.cuts, name}), "fuse-less")


def _skill_moves(skill: ExecutableSkill) -> list[str]:
    product = _PRODUCT_MOVES.get(str(skill.spec.get("product", "")))
    moves: list[Any] = list(skill.spec.get("realises", []))
    return [*map(str, moves), *([product] if product else [])]


def _weight(region: Region) -> float:
    elements = region.rows * region.cols
    arithmetic = sum(COST.get(v.fn, 1) for v in region.members if v.kind == "map" and region.is_full(v))
    traffic = sum(a.value.numel for a in (*region.loads, *region.stores))
    return traffic + elements * arithmetic / 16
