"""What retrieval brings decides what the generator does; everything else follows from the seed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from recipe_support import Apply, compare, facts_of

from agent.generator import Draft, Exhausted, GenerationRequest, ParentView
from agent.novelty import genome_digest, program_digest
from agent.recipe import RecipeGenerator
from harness.errors import ProblemError
from kb.records import Hit, SkillRecord
from prompts.record import PromptRecord

torch.manual_seed(0)
MODEL = Apply(lambda x, b: F.layer_norm(F.gelu(x + b), (64,)))
INPUTS = [torch.randn(40, 64), torch.randn(64)]
SEED = "# compiler's own\nclass ModelNew: ...\n"


class Compiler:
    """Stands for the executor's compiler; its code is never run here."""

    def compiler_source(self, problem_source: str) -> str:
        return SEED


class NoCompiler:
    def compiler_source(self, problem_source: str) -> str:
        raise ProblemError("no code for this problem")


@pytest.fixture(scope="module")
def facts() -> Any:
    return facts_of(MODEL, INPUTS)


def hit(chunk: str, when: str, move: str) -> Hit:
    meta = {"advice": [{"when": when, "move": move, "because": "the test says so"}]}
    return Hit(1, 1.0, "guidance", "library", "a.md", "", None, 1, 2, "", f"a.md#{chunk}", chunk, meta=meta)


def ask(
    facts: Any, skills: list[SkillRecord], hits: tuple[Hit, ...] = (), **changes: Any
) -> GenerationRequest:
    prompt = PromptRecord("", 0, {}, [], "", skills=skills, hits=list(hits))
    request = GenerationRequest(prompt, facts, "problem", "cpu", None, 0, 7)
    return replace(request, **changes)


def parent_of(draft: Draft, bottleneck: str = "memory", status: str = "correct") -> ParentView:
    return ParentView(
        "n", draft.source, {"status": status}, {"bottleneck": bottleneck}, draft.genome, "recipe"
    )


def digests(*drafts: Draft) -> frozenset[str]:
    genomes = [genome_digest(d.genome) for d in drafts if d.genome is not None]
    return frozenset([*(program_digest(d.source) for d in drafts), *genomes])


def skills_of(draft: Draft) -> set[str]:
    assert draft.genome is not None
    return {g["skill"] for g in draft.genome["genes"].values()}


def test_first_draft_composes_retrieved_skills(facts: Any, all_skills: list[SkillRecord]) -> None:
    draft = RecipeGenerator(Compiler()).generate(ask(facts, all_skills))
    assert skills_of(draft) == {"row-normalization-two-pass"}
    assert "row-normalization-two-pass" in draft.used
    assert "row-normalization-two-pass" in draft.hypothesis
    compare(MODEL, INPUTS, draft.source)


def test_removing_the_skill_from_retrieval_changes_the_candidate(
    facts: Any, all_skills: list[SkillRecord]
) -> None:
    with_it = RecipeGenerator(Compiler()).generate(ask(facts, all_skills))
    rest = [s for s in all_skills if s.name not in skills_of(with_it)]
    without = RecipeGenerator(Compiler()).generate(ask(facts, rest))
    assert not skills_of(with_it) & skills_of(without)
    assert program_digest(with_it.source) != program_digest(without.source)
    compare(MODEL, INPUTS, without.source)


def test_removing_the_advice_changes_the_mutation(facts: Any, all_skills: list[SkillRecord]) -> None:
    generator = RecipeGenerator(Compiler())
    first = generator.generate(ask(facts, all_skills))
    request = ask(facts, all_skills, (hit("c1", "memory", "nontemporal-stores"),), parent=parent_of(first))
    guided = generator.generate(request)
    assert guided.genome is not None
    assert guided.genome["change"]["move"] == "nontemporal-stores"
    assert "ke::each_aligned" in guided.source
    assert "c1" in guided.used
    assert "a.md#c1" in guided.hypothesis
    unguided = generator.generate(replace(request, prompt=replace(request.prompt, hits=[])))
    assert program_digest(unguided.source) != program_digest(guided.source)
    assert "unguided" in unguided.hypothesis
    assert "c1" not in unguided.used


def test_advice_for_another_bottleneck_is_not_followed(facts: Any, all_skills: list[SkillRecord]) -> None:
    generator = RecipeGenerator(Compiler())
    first = generator.generate(ask(facts, all_skills))
    advice = (hit("c1", "compute", "nontemporal-stores"),)
    draft = generator.generate(ask(facts, all_skills, advice, parent=parent_of(first, "latency")))
    assert "unguided" in draft.hypothesis


@pytest.mark.parametrize(
    ("move", "changed"),
    [
        ("fewer-passes", "skill"),
        ("recompute-instead-of-store", "residency"),
        ("more-accumulators", "unroll"),
        ("dynamic-schedule", "schedule"),
        ("fuse-less", "cuts"),
        ("prefetch", "prefetch"),
        ("library-call", "skill"),
    ],
)
def test_moves_reach_the_gene_that_realises_them(
    facts: Any, all_skills: list[SkillRecord], move: str, changed: str
) -> None:
    generator = RecipeGenerator(Compiler())
    first = generator.generate(ask(facts, all_skills))
    draft = generator.generate(ask(facts, all_skills, (hit("c", "memory", move),), parent=parent_of(first)))
    assert draft.genome is not None
    assert draft.genome["change"]["gene"].rpartition(".")[2] == changed
    compare(MODEL, INPUTS, draft.source)


def test_second_draft_is_the_compilers_own_and_says_so(facts: Any, all_skills: list[SkillRecord]) -> None:
    generator = RecipeGenerator(Compiler())
    first = generator.generate(ask(facts, all_skills))
    second = generator.generate(ask(facts, all_skills, tried=digests(first)))
    assert second.compiler_made
    assert second.source == SEED
    third = generator.generate(ask(facts, all_skills, tried=digests(first, second)))
    assert not third.compiler_made
    assert skills_of(third) != skills_of(first)


def test_without_a_fitting_skill_it_says_that_it_knows_no_better(
    facts: Any, all_skills: list[SkillRecord]
) -> None:
    pooling = [s for s in all_skills if s.name == "window-pooling"]
    draft = RecipeGenerator(Compiler()).generate(ask(facts, pooling))
    assert draft.compiler_made
    assert "no better than the compiler" in draft.hypothesis
    with pytest.raises(Exhausted, match="no retrieved skill applies"):
        RecipeGenerator(NoCompiler()).generate(ask(facts, pooling))


def test_an_untraceable_problem_gets_the_compilers_code(facts: Any, all_skills: list[SkillRecord]) -> None:
    broken = replace(facts, trace_error="no graph", nodes=[])
    draft = RecipeGenerator(Compiler()).generate(ask(broken, all_skills))
    assert draft.compiler_made
    assert "no graph" in draft.hypothesis


@pytest.mark.parametrize("status", ["compile_error", "incorrect"])
def test_a_failed_change_is_undone_and_avoided(
    facts: Any, all_skills: list[SkillRecord], status: str
) -> None:
    generator = RecipeGenerator(Compiler())
    first = generator.generate(ask(facts, all_skills))
    advice = (hit("c1", "memory", "nontemporal-stores"), hit("c2", status, "nontemporal-stores"))
    bad = generator.generate(ask(facts, all_skills, advice, parent=parent_of(first)))
    request = ask(facts, all_skills, advice, parent=parent_of(bad, status, status), tried=digests(first, bad))
    repaired = generator.generate(request)
    assert repaired.genome is not None
    (avoided,) = repaired.genome["avoid"]
    assert avoided.endswith("nontemporal=True")
    assert avoided in repaired.hypothesis
    gene = next(iter(repaired.genome["genes"].values()))
    assert gene["params"].get("nontemporal", False) is False


def test_a_failed_draft_loses_its_skill(facts: Any, all_skills: list[SkillRecord]) -> None:
    generator = RecipeGenerator(Compiler())
    first = generator.generate(ask(facts, all_skills))
    parent = parent_of(first, "incorrect", "incorrect")
    repaired = generator.generate(ask(facts, all_skills, parent=parent, tried=digests(first)))
    assert not skills_of(first) & skills_of(repaired)


def test_same_seed_same_candidates_and_never_a_repeat(facts: Any, all_skills: list[SkillRecord]) -> None:
    def chain(seed: int) -> list[str]:
        generator = RecipeGenerator(Compiler())
        drafts = [generator.generate(ask(facts, all_skills, seed=seed))]
        for step in range(1, 12):
            request = ask(facts, all_skills, parent=parent_of(drafts[-1]), step=step, seed=seed * 100 + step)
            drafts.append(generator.generate(replace(request, tried=digests(*drafts))))
        return [program_digest(d.source) for d in drafts]

    once = chain(1)
    assert len(set(once)) == len(once)
    assert chain(1) == once
    assert chain(2) != once


def test_exhausted_when_every_change_was_tried(facts: Any, all_skills: list[SkillRecord]) -> None:
    generator = RecipeGenerator(NoCompiler())
    only = [s for s in all_skills if s.name == "row-normalization-two-pass"]
    drafts = [generator.generate(ask(facts, only))]
    first = parent_of(drafts[0])

    def another() -> None:
        drafts.append(generator.generate(ask(facts, only, parent=first, tried=digests(*drafts))))

    with pytest.raises(Exhausted):
        all(another() is None for _ in range(200))
    assert len(drafts) > 10


def test_inherited_skills_survive_a_retrieval_without_them(facts: Any, all_skills: list[SkillRecord]) -> None:
    generator = RecipeGenerator(Compiler())
    first = generator.generate(ask(facts, all_skills))
    child = generator.generate(ask(facts, [], (hit("c", "memory", "prefetch"),), parent=parent_of(first)))
    assert skills_of(child) == skills_of(first)


def test_inherited_skills_of_the_users_own(facts: Any, all_skills: list[SkillRecord]) -> None:
    """They are in no curated library: what was retrieved before is kept, and a loss is said."""
    own = [replace(s, name="house-norm") for s in all_skills if s.name == "row-normalization-two-pass"]
    generator = RecipeGenerator(Compiler())
    first = generator.generate(ask(facts, own))
    assert skills_of(first) == {"house-norm"}
    advice = (hit("c", "memory", "prefetch"),)
    child = generator.generate(ask(facts, [], advice, parent=parent_of(first)))
    assert skills_of(child) == {"house-norm"}
    others = [s for s in all_skills if s.name.startswith("row-norm")]
    stranger = RecipeGenerator(Compiler()).generate(ask(facts, others, advice, parent=parent_of(first)))
    assert "house-norm is not at hand any more" in stranger.hypothesis


def test_ideas_are_named_and_made(facts: Any, all_skills: list[SkillRecord]) -> None:
    generator = RecipeGenerator(Compiler())
    named = generator.generate(ask(facts, all_skills, want_ideas=6))
    assert (named.source, len(named.ideas)) == ("", 6)
    drafts = [generator.generate(ask(facts, all_skills, idea=idea)) for idea in named.ideas[:3]]
    assert len({draft.source for draft in drafts}) == 3
    parent = parent_of(drafts[0])
    unadvised = generator.generate(ask(facts, all_skills, parent=parent, want_ideas=99)).ideas
    move = next(i.partition("(")[2].rstrip(")") for i in reversed(unadvised) if i.endswith(")"))
    assert not unadvised[0].endswith(f"({move})")
    advice = (hit("1", "memory", move),)
    following = generator.generate(ask(facts, all_skills, advice, parent=parent, want_ideas=4))
    assert following.ideas[0].endswith(f"({move})")
    made = generator.generate(ask(facts, all_skills, advice, parent=parent, idea=following.ideas[0]))
    assert move in made.hypothesis
    tried = digests(*drafts, made)
    again = ask(facts, all_skills, advice, parent=parent, idea=following.ideas[0], tried=tried)
    with pytest.raises(Exhausted):
        generator.generate(again)
    fresh = generator.generate(ask(facts, all_skills, advice, parent=parent, want_ideas=4, tried=tried))
    assert following.ideas[0] not in fresh.ideas
