"""Greedy: a few independent drafts, then always the best node, now and then the second best."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agent.graph import SearchGraph, SearchNode
from agent.policies.base import Attempts, Selection, repair_or_draft

# How often the runner-up is expanded although the best still has something to offer.
_RUNNER_UP = 0.15


class Greedy:
    """Independent drafts, then the best correct node; with a small chance the second best."""

    name = "greedy"

    def __init__(self, drafts: int) -> None:
        self._attempts = Attempts(drafts)

    def ask(
        self, graph: SearchGraph, rng: random.Random, pending: Sequence[Selection] = ()
    ) -> Selection | None:
        if self._attempts.drafting(pending):
            return Selection(None, "none", "independent draft")
        ranked = [n for n in graph if n.correct and self._attempts.open(n.node_id)]
        ranked.sort(key=lambda node: node.rank, reverse=True)
        if not ranked:
            return repair_or_draft(graph, self._attempts, rng)
        if len(ranked) > 1 and rng.random() < _RUNNER_UP:
            return Selection(ranked[1].node_id, "lineage", f"second best: step {ranked[1].step}")
        return Selection(ranked[0].node_id, "lineage", f"best: step {ranked[0].step}")

    def tell(self, selection: Selection, node: SearchNode | None, exhausted: bool = False) -> None:
        self._attempts.tell(selection, node, exhausted)
