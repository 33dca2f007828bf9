"""Measuring a skill again: where its evidence is, and on problems that it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.distil.evidence import Case, Measurer, Record
from agent.distil.library import SkillFolders, genome_of
from agent.distil.patterns import Composition, Kernel, Pattern
from agent.distil.staleness import mark_stale
from agent.distil.writing import KERNEL, PROBLEM
from agent.errors import SkillNotMeasurable
from agent.recipe.genome import Genome
from agent.recipe.library import curated
from agent.recipe.skills import ExecutableSkill
from kb.skill_states import is_win

if TYPE_CHECKING:
    from agent.judge import Executor
    from harness.problem import Problem
    from kb import KnowledgeBase
    from kb.records import SkillRecord

_ORIGIN = "verify"  # of evidence about curated skills, which have their own file for what ships with them


@dataclass(frozen=True)
class Verified:
    """`measured` are the new records; `stale` counts those of the skill that are of another machine still."""

    name: str
    state: str
    measured: list[Record]
    stale: int

    @property
    def holds(self) -> bool:
        """Whether everything that was measured is a win."""
        return bool(self.measured) and all(is_win(record) for record in self.measured)


def verify(
    kb: KnowledgeBase,
    executor: Executor,
    name: str,
    problems: Sequence[Problem] = (),
    *,
    timing_s: float = 4.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Verified:
    """Measure a skill on every problem and size that its evidence has, and on `problems`; what is new takes
    the place of what was measured before.

    Raises NotFound, SkillNotMeasurable for a skill of words alone, ProblemError, TargetUnavailable.
    """
    skill = kb.skill(name)
    pattern = pattern_of(kb, skill)
    target = str((skill.spec.get("applies") or {}).get("target") or skill.target)
    executor.require(target)
    measurer = Measurer(executor, target, timing_s)
    measured = []
    for case in [*_cases(skill), *(Case(p.name, p.source) for p in problems)]:
        tell(f"measuring on {case.name}" + ("" if case.size == "own" else f", {case.size}"))
        measured.append(measurer.measure(pattern, case, measurer.facts(case), {"run": "", "node": ""}))
    SkillFolders(kb).strengthen(name, measured, _ORIGIN)
    mark_stale(kb)
    after = kb.skill(name)
    return Verified(name, after.state, measured, sum(bool(r.get("stale")) for r in after.evidence))


def pattern_of(kb: KnowledgeBase, skill: SkillRecord) -> Pattern:
    """What a stored skill makes candidates by. Raises SkillNotMeasurable."""
    if skill.spec.get("kind") == "kernel":
        return Kernel((skill.root / KERNEL).read_text(encoding="utf-8"))
    if skill.spec.get("kind") == "composition":
        genome = genome_of(skill.spec)
        records = {r.name: r for r in curated(genome.skills())}
        for other in genome.skills() - set(records):
            records[other] = kb.skill(other)
        return Composition(genome, tuple(ExecutableSkill(records[n]) for n in sorted(records)))
    if ExecutableSkill.executable(skill):
        return Composition(Genome({}), (ExecutableSkill(skill),))
    raise SkillNotMeasurable(
        f"{skill.name} is text: there is nothing to run", "see: kernelevolve skills show"
    )


def _cases(skill: SkillRecord) -> list[Case]:
    """The problems and sizes of the evidence, each once; what ships with a skill is of its `problem.py`."""
    path = skill.root / PROBLEM
    own = path.read_text(encoding="utf-8") if path.is_file() else None
    found: dict[str, Case] = {}
    for record in skill.evidence:
        source = record.get("problem_source") or own
        if source is not None:
            name = skill.name if record.get("problem") == PROBLEM else str(record.get("problem"))
            found.setdefault(str(source), Case(name, str(source), str(record.get("size") or "own")))
    if not found and own is not None:
        found[own] = Case(skill.name, own)
    return list(found.values())
