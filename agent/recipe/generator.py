"""The embedded generator: composes candidates from retrieved skills and mutates them as retrieved guidance
advises.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from agent.generator import Draft, Exhausted, GenerationRequest
from agent.hypothesis import Hypothesis
from agent.novelty import genome_digest, program_digest
from agent.recipe import claims
from agent.recipe.axes import Incompatible
from agent.recipe.genome import Change, Genome
from agent.recipe.graph import Unsupported
from agent.recipe.library import curated
from agent.recipe.skills import ExecutableSkill, executable_skills
from agent.recipe.workbench import Workbench
from harness.errors import HarnessError

_FAILED = ("compile_error", "incorrect", "runtime_error", "timeout", "rejected")
#: The first idea for a specification.
START = "compose the graph from retrieved skills, or begin with the compiler's own code where none applies"
#: What a diagnosis calls trouble, in the words of guidance.
_BOTTLENECKS = {"crash": "incorrect"}


class CompilerSource(Protocol):
    def compiler_source(self, problem_source: str) -> str: ...


@dataclass(frozen=True)
class Advice:
    """One line of a guidance document: when the bottleneck is `when`, make this move."""

    move: str
    because: str
    chunk_id: str
    citation: str


class RecipeGenerator:
    """Implements `agent.generator.Generator` with retrieved skills; no model, no network.

    New skills come from `request.prompt.skills` only and guidance from `request.prompt.hits` only. Skills
    that the parent already uses are inherited with it: from the curated library, or as they were retrieved
    before.
    """

    name = "recipe"
    hosted = False

    def __init__(self, executor: CompilerSource) -> None:
        self._executor = executor
        self._seeds: dict[str, str | None] = {}
        self._retrieved: dict[str, ExecutableSkill] = {}

    def generate(self, request: GenerationRequest) -> Draft:
        """The next draft, or a mutation of the parent. Raises Exhausted when nothing new is left."""
        try:
            return self._generate(request)
        except Unsupported as reason:
            return self._compiler_seed(request, f"no skill can work on this problem: {reason}")

    def _generate(self, request: GenerationRequest) -> Draft:
        parent = request.parent
        genome = Genome.from_json(parent.genome) if parent and parent.genome else None
        skills = self._skills(request, genome)
        bench = Workbench(request.facts, skills)
        if request.want_ideas:
            return self._ideas(request, bench, genome)
        if genome is None or parent is None:
            return self._draft(request, bench)
        known = bench.completed(genome)
        failed = parent.evaluation.get("status") in _FAILED
        # What failed was the idea: a repair makes another change.
        draft = (
            self._repair(replace(request, idea=""), bench, known)
            if failed
            else self._mutate(request, bench, known)
        )
        lost = genome.skills() - {s.name for s in skills}
        if lost:
            text = f"The parent's {', '.join(sorted(lost))} is not at hand any more and gave way. "
            draft = replace(draft, hypothesis=text + draft.hypothesis)
        return draft

    def _skills(self, request: GenerationRequest, genome: Genome | None) -> list[ExecutableSkill]:
        skills = list(executable_skills(request.prompt.skills))
        self._retrieved |= {s.name: s for s in skills}
        wanted = (genome.skills() if genome else set()) - {s.name for s in skills}
        before = [self._retrieved[name] for name in sorted(wanted) if name in self._retrieved]
        return [*skills, *before, *executable_skills(curated(wanted - set(self._retrieved)))]

    # Ideas

    def _ideas(self, request: GenerationRequest, bench: Workbench, genome: Genome | None) -> Draft:
        """Changes in words, of which a later request may have one made: what is advised comes first."""
        known = bench.completed(genome) if genome else bench.default()
        moves = [advice.move for advice in advised(request, self._bottleneck(request))]
        changes = sorted(
            self._shuffled(request, bench, known),
            key=lambda change: moves.index(change.move) if change.move in moves else len(moves),
        )
        fresh = [
            c
            for c in changes
            if genome_digest(bench.completed(known.apply(c)).to_json()) not in request.tried
        ]
        ideas = dict.fromkeys([*([] if genome else [START]), *map(_in_words, fresh)])
        if not ideas:
            raise Exhausted("every single change of this genome has been tried")
        return Draft("", "", ideas=tuple(ideas)[: request.want_ideas])

    # Drafts

    def _draft(self, request: GenerationRequest, bench: Workbench) -> Draft:
        default = bench.default()
        if request.idea not in ("", START):
            return self._mutate(request, bench, default)
        if not any(g.skill for g in default.genes.values()):
            return self._compiler_seed(request, "no retrieved skill applies to any part of this graph")
        draft = self._candidate(request, bench, default)
        if draft is not None:
            parts = [f"{key} by skill {g.skill}" for key, g in default.genes.items() if g.skill]
            left = sum(g.skill is None for g in default.genes.values())
            text = f"Compose the graph from retrieved skills with default parameters: {'; '.join(parts)}"
            text += f"; {left} regions stay ATen calls" if left else ""
            return replace(
                draft,
                hypothesis=text + ". Fusion should save the traffic of every intermediate tensor.",
                claim=claims.fusion(text, request.facts),
            )
        seed = self._seed(request)
        if seed is not None:
            return seed
        for change in self._shuffled(request, bench, default):
            if change.gene.endswith(".skill") and change.after is not None:
                other = self._candidate(request, bench, bench.completed(default.apply(change)), change)
                if other is not None:
                    text = f"Another composition from retrieved skills: {change.text()}"
                    return replace(other, hypothesis=f"{text}.", claim=claims.fusion(text, request.facts))
        return self._mutate(request, bench, default)

    def _compiler_seed(self, request: GenerationRequest, reason: str) -> Draft:
        draft = self._seed(request)
        if draft is None:
            raise Exhausted(f"{reason}, and the compiler's own code is in the run already")
        return replace(draft, hypothesis=f"I know no better than the compiler: {reason}. {draft.hypothesis}")

    def _seed(self, request: GenerationRequest) -> Draft | None:
        """TorchInductor's code, where there is one and the run does not have it."""
        key = request.problem_source
        if key not in self._seeds:
            try:
                self._seeds[key] = self._executor.compiler_source(key)
            except HarnessError:
                self._seeds[key] = None  # the compiler has no code for this problem; the other drafts remain
        source = self._seeds[key]
        if source is None or program_digest(source) in request.tried:
            return None
        text = "TorchInductor's code as a start: compiler-made, so parity with torch.compile is no win."
        claim = Hypothesis("TorchInductor's code", "the compiler fuses what it can", faster=True)
        return Draft(source, text, compiler_made=True, claim=claim)

    # Mutation

    def _mutate(self, request: GenerationRequest, bench: Workbench, genome: Genome) -> Draft:
        bottleneck = self._bottleneck(request)
        changes = [c for c in bench.neighbours(genome) if request.idea in ("", _in_words(c))]
        for advice in advised(request, bottleneck):
            for change in changes:
                if change.move == advice.move:
                    draft = self._candidate(request, bench, bench.completed(genome.apply(change)), change)
                    if draft is not None:
                        text = (
                            f"The parent is bound by {bottleneck}. {advice.citation} advises {advice.move}, "
                            f"because {advice.because}: change {change.text()}. "
                            f"Predicted: less time spent on {bottleneck}."
                        )
                        used = tuple(dict.fromkeys((advice.chunk_id, *draft.used)))
                        claim = claims.advised_change(
                            change.text(),
                            f"{advice.move}: {advice.because}",
                            request.parent.diagnosis if request.parent else {},
                        )
                        return replace(draft, hypothesis=text, used=used, claim=claim)
        for change in self._shuffled(request, bench, genome):
            draft = self._candidate(request, bench, bench.completed(genome.apply(change)), change)
            if draft is not None:
                text = (
                    f"No retrieved guidance for {bottleneck} is left to try here, so this step is unguided: "
                    f"change {change.text()}. Whether that helps on this machine is to be measured."
                )
                return replace(draft, hypothesis=text, claim=claims.unguided_change(change.text()))
        raise Exhausted("every single change of this genome has been tried")

    def _repair(self, request: GenerationRequest, bench: Workbench, genome: Genome) -> Draft:
        """After a failure: back to before the change that caused it, and another change from there."""
        assert request.parent is not None
        status = request.parent.evaluation.get("status")
        if genome.change is not None:
            blamed = genome.change.mark
            draft = self._mutate(request, bench, bench.completed(genome.reverted()))
            text = f"The parent was {status}: {blamed} is avoided."
            return replace(
                draft,
                hypothesis=f"{text} {draft.hypothesis}",
                claim=claims.repair(f"{blamed} is avoided", status),
            )
        for change in bench.neighbours(genome):
            if change.gene.endswith(".skill"):
                mark = f"{change.gene}={change.before}"
                repaired = replace(genome.apply(change), avoid=tuple(sorted({*genome.avoid, mark})))
                other = self._candidate(request, bench, bench.completed(repaired), change)
                if other is not None:
                    text = (
                        f"The parent was {status}: {change.before} is suspected and avoided, {change.text()}."
                    )
                    return replace(other, hypothesis=text, claim=claims.repair(change.text(), status))
        raise Exhausted("the failed parent has no skill left to replace")

    def _shuffled(self, request: GenerationRequest, bench: Workbench, genome: Genome) -> Iterator[Change]:
        """All changes in seeded order, heavier regions more likely early."""
        rng = random.Random(request.seed)
        weights = bench.weights(genome.cuts)
        heaviest = max([1.0, *weights.values()])

        def key(change: Change) -> float:
            region = change.gene.rpartition(".")[0]
            share = 0.05 + weights.get(region, heaviest / 8) / heaviest
            # Splitting a fusion or giving a region back to ATen rarely helps.
            penalty = 4.0 if change.after is None or change.move == "fuse-less" else 1.0
            return rng.expovariate(share) * penalty

        changes = [c for c in bench.neighbours(genome) if request.idea in ("", START, _in_words(c))]
        return iter(sorted(changes, key=key))

    def _candidate(
        self, request: GenerationRequest, bench: Workbench, genome: Genome, change: Change | None = None
    ) -> Draft | None:
        """The genome as a draft; None when it cannot be composed or the run has it already."""
        data = genome.to_json()
        if genome_digest(data) in request.tried:
            return None
        try:
            composition = bench.compose(genome)
        except (Incompatible, Unsupported):
            return None
        if program_digest(composition.source) in request.tried:
            return None
        names = [g.skill for g in genome.genes.values() if g.skill]
        shaped = [g for g in names if change is None or g == change.after] or ([] if change else names)
        used = [i for s in request.prompt.skills if s.name in shaped for i in (s.skill_id, s.chunk_id) if i]
        notes: dict[str, Any] = {"kernels": composition.kernels, "aten_calls": composition.calls}
        return Draft(composition.source, "", genome=data, used=tuple(dict.fromkeys(used)), notes=notes)

    @staticmethod
    def _bottleneck(request: GenerationRequest) -> str:
        diagnosis = request.parent.diagnosis if request.parent else {}
        named = str(diagnosis.get("bottleneck") or "unknown")
        return _BOTTLENECKS.get(named, named)


def _in_words(change: Change) -> str:
    return f"{change.text()} ({change.move})" if change.move else change.text()


def advised(request: GenerationRequest, bottleneck: str) -> list[Advice]:
    """The retrieved advice for a bottleneck, in retrieval order."""
    found: dict[tuple[str, str], Advice] = {}
    for hit in request.prompt.hits:
        for item in _items(hit.meta.get("advice")):
            if item.get("when") == bottleneck and "move" in item:
                advice = Advice(str(item["move"]), str(item.get("because", "")), hit.chunk_id, hit.citation)
                found.setdefault((hit.chunk_id, advice.move), advice)
    return list(found.values())


def _items(value: Any) -> Iterable[dict[str, Any]]:
    return [i for i in value if isinstance(i, dict)] if isinstance(value, Sequence) else []
