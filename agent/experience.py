"""What a run has learnt so far, its own and earlier runs' failures, and what it decides without its policy:
numbers to tune after a model's step, and finds of earlier runs to bring in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent.earlier import Earlier
from agent.graph import SearchGraph, SearchNode
from agent.memory import NegativeMemory, avoidance
from agent.policies import Memory, Policy, Selection
from agent.policies.base import WARM_START
from agent.settings import SearchSettings
from agent.tuner import Tuner
from agent.warm_start import WarmStart


class Experience:
    """State follows from `begin` and `tell` alone, so that a resumed run decides as it would have."""

    def __init__(self, tune: int = 0, warm_start: str = "0") -> None:
        self.tuner = Tuner(tune)
        self.warm = WarmStart(warm_start)
        self._failures = NegativeMemory()
        self._earlier: list[dict[str, Any]] = []

    @classmethod
    def of(cls, settings: SearchSettings) -> Experience:
        return cls(settings.tune, settings.warm_start)

    def begin(self, earlier: Earlier) -> None:
        """What was taken over from earlier runs when this one began."""
        self._earlier = earlier.avoid
        self.warm.matches = list(earlier.matches)

    def tell(
        self, selection: Selection, node: SearchNode | None, best: SearchNode | None, *, is_best: bool
    ) -> None:
        """A step is over; `best` is the best node now, `is_best` whether this step made it."""
        if node is not None:
            self._failures.tell(node)
        self.tuner.tell(selection.injected, node, best.fitness if best else 0.0)
        self.warm.tell(selection.injected, is_best=is_best)

    def avoid(self, memory: Memory, told: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Strategies to avoid as a prompt takes them, without the steps that are `told` anyway. A clean slate
        hears of earlier runs alone.
        """
        own = [] if memory == "none" else self._failures.entries({int(e["step"]) for e in told})
        return [avoidance(entry) for entry in [*own, *self._earlier]]


def choose(
    experience: Experience,
    policy: Policy,
    graph: SearchGraph,
    pending: Sequence[Selection],
    *,
    tried: set[str],
    source_of: Callable[[SearchNode], str],
    rng: Callable[[str], random.Random],
) -> Selection | None:
    """The next step: a number to tune, a find of an earlier run, or what the policy wants; None as by
    `Policy.ask`. `rng` gives the random numbers of the step for a purpose.
    """
    waiting = [selection.injected for selection in pending if selection.injected is not None]
    tune = experience.tuner.propose(source_of, tried, waiting)
    if tune is not None:
        base = graph.node(experience.tuner.base_of(tune))
        reason = f"tune step {base.step}: {tune['name']} from {tune['from']} to {tune['to']}"
        return Selection(base.node_id, "none", reason, injected=tune)
    found = experience.warm.propose(rng("warm-start"), waiting)
    if found is not None and found["by"] == WARM_START:
        match = experience.warm.match(found["node"])
        reason = f"warm start: {match.speedup:.2f}x in run {match.run_id}"
        return Selection(None, "none", reason, injected=found)
    selection = policy.ask(graph, rng("policy"), pending)
    if selection is None or found is None or selection.want_ideas:
        return selection
    return replace(selection, injected=found)
