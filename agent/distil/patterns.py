"""What a winner is besides its text: something that makes a candidate for another problem."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent.novelty import program_digest
from agent.recipe.axes import Incompatible
from agent.recipe.genome import Gene, Genome
from agent.recipe.graph import Unsupported
from agent.recipe.skills import ExecutableSkill
from agent.recipe.workbench import Workbench
from harness.worker.model import ProblemFacts

_MAX_TUNABLES = 3
# Integers that a kernel's author gave a name: constants of Python, C++ and its preprocessor.
_TUNABLE = re.compile(
    r"^[ \t]*(?:(?P<py>[A-Z][A-Z0-9_]*)(?:[ \t]*:[ \t]*(?:int|tl\.constexpr))?"
    r"[ \t]*=[ \t]*(?P<pyv>\d+)[ \t]*(?:#.*)?$"
    r"|(?:static[ \t]+)?(?:constexpr|const)[ \t]+(?:static[ \t]+)?(?:unsigned[ \t]+)?"
    r"(?:int|long|auto|size_t|u?int(?:32|64)_t)[ \t]+(?P<cpp>\w+)[ \t]*=[ \t]*(?P<cppv>\d+)[ \t]*;"
    r"|\#[ \t]*define[ \t]+(?P<def>\w+)[ \t]+(?P<defv>\d+)[ \t]*$)",
    re.MULTILINE,
)


class Pattern(Protocol):
    """`fingerprint` is equal for two patterns that say the same."""

    @property
    def kind(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    def candidate(self, facts: ProblemFacts) -> str:
        """A candidate for a problem. Raises Unsupported where the pattern does not apply."""
        ...


@dataclass(frozen=True)
class Kernel:
    """A whole file that takes any size; named integers in it are its parameters."""

    source: str
    kind: str = field(default="kernel", init=False)

    @property
    def fingerprint(self) -> str:
        return program_digest(with_parameters(self.source, dict.fromkeys(parameters(self.source), 0)))

    def candidate(self, facts: ProblemFacts) -> str:  # noqa: ARG002 - the file is for all
        return self.source


@dataclass(frozen=True)
class Composition:
    """Skills with parameters, for the regions of a traced graph that they apply to.

    On the graph that it comes from, region by region; on another, each region that one of the skills can
    implement gets it with the same parameters. An empty genome stands for the skills' own parameters.
    """

    genome: Genome
    skills: tuple[ExecutableSkill, ...]
    kind: str = field(default="composition", init=False)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(("composition:" + " ".join(sorted(self.genome.skills()))).encode()).hexdigest()

    def candidate(self, facts: ProblemFacts) -> str:
        bench = Workbench(facts, list(self.skills))
        if not self.genome.genes:  # the skills with their own parameters
            return self._composed(bench, bench.default())
        own = bench.options(self.genome.cuts)
        if set(own) == set(self.genome.genes):
            genome = bench.completed(self.genome)
        else:
            known = {g.skill: g for g in self.genome.genes.values() if g.skill is not None}
            genes = {}
            for key, options in bench.options(()).items():
                skill = next((s for s in options if s.name in known), None)
                genes[key] = Gene(skill.name, known[skill.name].params) if skill else Gene(None)
            genome = bench.completed(Genome(genes, flags=self.genome.flags))
        return self._composed(bench, genome)

    @staticmethod
    def _composed(bench: Workbench, genome: Genome) -> str:
        if not genome.skills():
            raise Unsupported("none of the skills applies to a part of this problem")
        try:
            return bench.compose(genome).source
        except Incompatible as error:
            raise Unsupported(str(error)) from error


def parameters(source: str) -> dict[str, int]:
    """Named integers greater than 1 of a candidate in order, at most three."""
    found: dict[str, int] = {}
    for match in _TUNABLE.finditer(source):
        name, value = _named(match)
        if value > 1 and name not in found and len(found) < _MAX_TUNABLES:
            found[name] = value
    return found


def with_parameters(source: str, chosen: Mapping[str, int]) -> str:
    """The candidate with other values for some of its parameters."""

    def changed(match: re.Match[str]) -> str:
        name, _ = _named(match)
        if name not in chosen:
            return match.group()
        group = next(g for g in ("pyv", "cppv", "defv") if match[g] is not None)
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        return f"{match.group()[:start]}{chosen[name]}{match.group()[end:]}"

    return _TUNABLE.sub(changed, source)


def _named(match: re.Match[str]) -> tuple[str, int]:
    name, value = next((match[g], match[g + "v"]) for g in ("py", "cpp", "def") if match[g])
    return name, int(value)


def language_of(source: str) -> str:
    """The kernel language of a candidate file, as skills name it."""
    for sign, language in (
        ("load_cuda", "cuda"),
        ("@triton.jit", "triton"),
        ("cutlass.cute", "cute"),
        ("load_cpp", "cpp"),
        ("cuda_sources", "cuda"),
        ("cpp_sources", "cpp"),
        ("pallas_call", "pallas"),
        ("ttl.", "tt-lang"),
    ):
        if sign in source:
            return language
    return "pytorch"


def spec_of(pattern: Pattern, tried: Mapping[str, list[int]]) -> dict[str, Any]:
    """What skill.toml says of the pattern. `tried` has the values of each parameter that were correct."""
    if isinstance(pattern, Composition):
        genome = pattern.genome
        genes = {
            key: {"skill": gene.skill or "", "params": gene.params} for key, gene in genome.genes.items()
        }
        return {"genome": {"cuts": list(genome.cuts), "flags": genome.flags, "genes": genes}}
    assert isinstance(pattern, Kernel)
    defaults = parameters(pattern.source)
    return {"parameters": {n: {"values": tried.get(n, [v]), "default": v} for n, v in defaults.items()}}
