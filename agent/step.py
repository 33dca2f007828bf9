"""A step of a run: what was decided, what was known then, and the prompt that follows from it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.earlier import example, taken_over
from agent.generator import Draft, GenerationRequest, ParentView
from agent.graph import SearchNode
from agent.memory import failed_attempts, lessons, parent_context
from agent.place import Place
from agent.policies import Selection
from agent.policies.base import EXAMPLE, TUNE, WARM_START
from agent.progress import RunProgress
from agent.settings import SearchSettings
from agent.store import RunStore
from agent.tuner import tuned_draft
from prompts import PromptRecord, PromptRequest, Synthesizer

if TYPE_CHECKING:
    from harness.worker.model import ProblemFacts
    from kb import KnowledgeBase


@dataclass(frozen=True)
class Step:
    """What to do next: make a candidate from `prompt` and have it judged, then tell the session.

    `request` says the same to a Generator. `parent` is None for a draft from the specification. With `ready`,
    the candidate is there already and no model is asked.
    """

    number: int
    selection: Selection
    parent: SearchNode | None
    prompt: PromptRecord
    request: GenerationRequest
    ready: Draft | None = None


@dataclass(frozen=True)
class Asked:
    """A decision with what was known when it was made: its prompt can be written later, or again."""

    number: int
    selection: Selection
    parent: SearchNode | None
    prompt: PromptRequest
    tried: frozenset[str]
    generators: tuple[str, ...]
    ready: Draft | None = None


class StepWriter:
    """Makes the steps of one run. `hosted` says whether prompts leave this machine."""

    def __init__(
        self,
        kb: KnowledgeBase,
        settings: SearchSettings,
        problem_source: str,
        facts: ProblemFacts,
        place: Place,
        *,
        run_id: str,
        hosted: bool,
    ) -> None:
        self._kb = kb
        self._store = RunStore(kb)
        self._run_id = run_id
        self._settings = settings
        self._source = problem_source
        self._facts = facts
        self._facts_json = facts.to_json()
        self._place = place
        self._hosted = hosted
        self._synthesizer = Synthesizer(kb)

    def decide(
        self, progress: RunProgress, number: int, selection: Selection, generators: Sequence[str]
    ) -> Asked:
        """The step as it is known now; `generators` are to be asked in this order."""
        parent = progress.graph.node(selection.parent_id) if selection.parent_id else None
        parent_id, memory = selection.parent_id, selection.memory
        failed = failed_attempts(progress.graph, progress.skipped, parent_id, memory)
        request = PromptRequest(
            problem_source=self._source,
            facts=self._facts_json,
            target=self._settings.target,
            target_facts=dict(self._place.facts),
            parent=parent_context(parent, self._store.source(parent)) if parent else None,
            diagnosis=parent.diagnosis if parent else None,
            failed=failed,
            lessons=lessons(progress.graph, parent_id, memory),
            avoid=progress.experience.avoid(memory, failed),
            examples=self._examples(progress, selection),
            budget_tokens=self._settings.budget_tokens,
            step=number,
            hosted=self._hosted,
            want_ideas=selection.want_ideas,
            idea=selection.idea,
            depth=len(progress.graph.lineage(parent.node_id)) if parent else 0,
            model=self._settings.generator,
        )
        return Asked(
            number,
            selection,
            parent,
            request,
            frozenset(progress.tried),
            tuple(generators),
            self._ready(progress, selection),
        )

    def _ready(self, progress: RunProgress, selection: Selection) -> Draft | None:
        """The candidate of a step that asks no model."""
        injected = selection.injected or {}
        if injected.get("by") == TUNE:
            return tuned_draft(self._store.source(progress.graph.node(str(selection.parent_id))), injected)
        if injected.get("by") == WARM_START:
            match = progress.experience.warm.match(str(injected["node"]))
            return taken_over(self._kb, match)
        return None

    def _examples(self, progress: RunProgress, selection: Selection) -> list[dict[str, Any]]:
        injected = selection.injected or {}
        if injected.get("by") != EXAMPLE:
            return []
        return [example(self._kb, progress.experience.warm.match(str(injected["node"])))]

    def _unasked(self, asked: Asked, ready: Draft) -> Step:
        """A step without a prompt: nothing is retrieved for it and no model is asked."""
        local_only = bool(ready.notes.get("local_only")) or bool(asked.parent and asked.parent.local_only)
        prompt = PromptRecord("", 0, {}, [], "", local_only=local_only)
        request = self._request(asked, prompt)
        return Step(asked.number, asked.selection, asked.parent, prompt, request, ready)

    def write(self, asked: Asked) -> Step:
        """The step with its prompt. Raises what retrieval raises, and BudgetTooSmall."""
        if asked.ready is not None:
            return self._unasked(asked, asked.ready)
        prompt = self._synthesizer.synthesize(asked.prompt)
        return Step(asked.number, asked.selection, asked.parent, prompt, self._request(asked, prompt))

    def _request(self, asked: Asked, prompt: PromptRecord) -> GenerationRequest:
        parent = asked.parent
        view = None
        if parent is not None:
            view = ParentView(
                node_id=parent.node_id,
                source=self._store.source(parent),
                evaluation=parent.evaluation,
                diagnosis=parent.diagnosis,
                genome=parent.genome,
                generator=parent.generator,
            )
        return GenerationRequest(
            prompt=prompt,
            facts=self._facts,
            problem_source=self._source,
            target=self._settings.target,
            parent=view,
            step=asked.number,
            seed=step_seed(self._settings, asked.number, "generator"),
            tried=asked.tried,
            want_ideas=asked.selection.want_ideas,
            idea=asked.selection.idea,
            run_id=self._run_id,
            generators=asked.generators,
        )


def step_rng(settings: SearchSettings, step: int) -> Callable[[str], random.Random]:
    """The random numbers of a step, for a purpose."""
    return lambda purpose: random.Random(step_seed(settings, step, purpose))


def step_seed(settings: SearchSettings, step: int, purpose: str) -> int:
    """Everything random in a step comes from the run's seed and the step's number."""
    text = f"{settings.seed}:{step}:{purpose}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
