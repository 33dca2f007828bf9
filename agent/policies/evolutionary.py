"""Evolutionary: a bounded population of correct nodes; tournaments choose who is expanded."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agent.graph import SearchGraph, SearchNode
from agent.policies.base import Attempts, Selection, repair_or_draft

_POPULATION = 8
_TOURNAMENT = 3


class Evolutionary:
    """Independent drafts, then tournament selection in a population of the eight fittest nodes."""

    name = "evolutionary"

    def __init__(self, drafts: int) -> None:
        self._attempts = Attempts(drafts)
        self._population: list[SearchNode] = []

    def ask(
        self, graph: SearchGraph, rng: random.Random, pending: Sequence[Selection] = ()
    ) -> Selection | None:
        if self._attempts.drafting(pending):
            return Selection(None, "none", "independent draft")
        members = [graph.node(member.node_id) for member in self._population]
        # A verification may have disqualified a member since it was told.
        fertile = [n for n in members if n.correct and self._attempts.open(n.node_id)]
        if not fertile:
            # Everyone in the population is spent: whoever was displaced gets a turn.
            fertile = [n for n in graph if n.correct and self._attempts.open(n.node_id)]
        if not fertile:
            return repair_or_draft(graph, self._attempts, rng)
        rivals = rng.sample(fertile, min(_TOURNAMENT, len(fertile)))
        winner = max(rivals, key=lambda node: node.rank)
        return Selection(winner.node_id, "siblings", f"tournament of {len(rivals)}: step {winner.step}")

    def tell(self, selection: Selection, node: SearchNode | None, exhausted: bool = False) -> None:
        self._attempts.tell(selection, node, exhausted)
        if node is not None and node.correct:
            self._population.append(node)
            self._population.sort(key=lambda member: member.rank, reverse=True)
            del self._population[_POPULATION:]
