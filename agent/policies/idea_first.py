"""Idea-first: ideas in words, diverse ones implemented side by side, the fastest starts the next round."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from agent.graph import SearchGraph
from agent.ideas import pick_diverse
from agent.policies.base import Memory, Outcome, Selection
from agent.policies.ledger import REPAIRABLE, Order, best_first

_ASKED = 2  # ideas that are asked for, for each that is implemented
_TRIES = 3  # steps of a branch: the first one, and repairs while nothing correct came of it
_DRY = 2  # requests that brought nothing new, after which a node is asked about no more


@dataclass
class _Branch:
    """One idea of a round. `at` is where its next step starts."""

    idea: str
    at: str | None
    left: int = _TRIES


class IdeaFirst:
    """Asks for ideas in words, implements diverse ones as branches, goes on from the fastest.

    The number of drafts is the number of branches of every round. The first round starts from the
    specification: its branches are independent drafts. A branch ends with its first correct candidate, or
    after two repairs. While the answer to a request for ideas is pending and all branches are under way,
    there is nothing to do; a round that has a correct candidate does not wait for its last branches.
    """

    name = "idea-first"

    def __init__(self, drafts: int) -> None:
        self._branches = drafts
        self._rounds: list[list[_Branch]] = []
        self._known: list[str] = []  # ideas that were implemented, latest last
        self._correct = Order()
        self._dry: Counter[str | None] = Counter()
        self._fruitful = True  # the latest round has something correct

    def ask(
        self,
        graph: SearchGraph,
        rng: random.Random,  # noqa: ARG002 - the generator's ideas are what is random
        pending: Sequence[Selection] = (),
    ) -> Selection | None:
        flying = {(selection.group, selection.idea) for selection in pending}
        # Branches of the round before may still need a repair; what is older has had its chance.
        for number in range(max(0, len(self._rounds) - 2), len(self._rounds)):
            for branch in self._rounds[number]:
                if branch.left and (number, branch.idea) not in flying:
                    return self._implement(graph, number, branch)
        if any(selection.want_ideas for selection in pending) or (pending and not self._fruitful):
            return None
        seed = next((n for n in self._correct if graph.node(n).correct and self._dry[n] < _DRY), None)
        if seed is None and self._dry[None] >= _DRY:
            return None
        reason = (
            "ideas for the specification"
            if seed is None
            else f"ideas for the fastest: step {graph.node(seed).step}"
        )
        memory: Memory = "both" if self._rounds else "none"
        return Selection(seed, memory, reason, len(self._rounds), want_ideas=_ASKED * self._branches)

    def _implement(self, graph: SearchGraph, number: int, branch: _Branch) -> Selection:
        if branch.left == _TRIES or branch.at is None:
            reason = f"round {number + 1}: {branch.idea}"
            return Selection(branch.at, "lineage" if branch.at else "none", reason, number, idea=branch.idea)
        reason = f"round {number + 1}, repair step {graph.node(branch.at).step}: {branch.idea}"
        return Selection(branch.at, "both", reason, number, idea=branch.idea)

    def tell(self, selection: Selection, outcome: Outcome) -> None:
        node = outcome.node
        if node is not None and node.correct:
            self._correct.put(node.node_id, best_first(node))
        if selection.want_ideas:
            self._begin(selection.parent_id, outcome)
            return
        if selection.group is None or selection.group >= len(self._rounds):
            return  # not one of this policy's
        for branch in self._rounds[selection.group]:
            if branch.idea == selection.idea:
                branch.left -= 1
                if node is not None and node.status in REPAIRABLE:
                    branch.at = node.node_id
                if outcome.exhausted or (node is not None and node.correct):
                    branch.left = 0
        if node is not None and node.correct and selection.group == len(self._rounds) - 1:
            self._fruitful = True

    def _begin(self, seed: str | None, outcome: Outcome) -> None:
        ideas = pick_diverse(outcome.ideas, self._branches, known=self._known[-64:])
        if outcome.exhausted:
            self._dry[seed] = _DRY
        elif not ideas:
            self._dry[seed] += 1
        if ideas:
            self._known += ideas
            self._rounds.append([_Branch(idea, seed) for idea in ideas])
            self._fruitful = False
