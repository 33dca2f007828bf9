"""A step of a run: what was decided, what was known then, and the prompt that follows from it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.generator import GenerationRequest, ParentView
from agent.graph import SearchNode
from agent.memory import failed_attempts, parent_context
from agent.place import Place
from agent.policies import Selection
from agent.progress import RunProgress
from agent.settings import SearchSettings
from agent.store import RunStore
from prompts import PromptRecord, PromptRequest, Synthesizer

if TYPE_CHECKING:
    from harness.worker.model import ProblemFacts
    from kb import KnowledgeBase


@dataclass(frozen=True)
class Step:
    """What to do next: make a candidate from `prompt` and have it judged, then tell the session.

    `request` says the same to a Generator. `parent` is None for a draft from the specification.
    """

    number: int
    selection: Selection
    parent: SearchNode | None
    prompt: PromptRecord
    request: GenerationRequest


@dataclass(frozen=True)
class Asked:
    """A decision with what was known when it was made: its prompt can be written later, or again."""

    number: int
    selection: Selection
    parent: SearchNode | None
    prompt: PromptRequest
    tried: frozenset[str]
    generators: tuple[str, ...]


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
        failed = failed_attempts(progress.graph, progress.skipped, selection.parent_id, selection.memory)
        request = PromptRequest(
            problem_source=self._source,
            facts=self._facts_json,
            target=self._settings.target,
            target_facts=dict(self._place.facts),
            parent=parent_context(parent, self._store.source(parent)) if parent else None,
            diagnosis=parent.diagnosis if parent else None,
            failed=failed,
            budget_tokens=self._settings.budget_tokens,
            step=number,
            hosted=self._hosted,
            want_ideas=selection.want_ideas,
            idea=selection.idea,
            depth=len(progress.graph.lineage(parent.node_id)) if parent else 0,
            model=self._settings.generator,
        )
        return Asked(number, selection, parent, request, frozenset(progress.tried), tuple(generators))

    def write(self, asked: Asked) -> Step:
        """The step with its prompt. Raises what retrieval raises, and BudgetTooSmall."""
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
        prompt = self._synthesizer.synthesize(asked.prompt)
        request = GenerationRequest(
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
        return Step(asked.number, asked.selection, parent, prompt, request)


def step_seed(settings: SearchSettings, step: int, purpose: str) -> int:
    """Everything random in a step comes from the run's seed and the step's number."""
    text = f"{settings.seed}:{step}:{purpose}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
