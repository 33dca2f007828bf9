"""Linear: a baseline that refines its latest candidate, whatever came of it."""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Sequence

from agent.graph import SearchGraph
from agent.policies.base import Outcome, Selection
from agent.policies.ledger import REPAIRABLE, Ledger


class Linear:
    """Independent drafts, then one chain from the best of them: always the latest candidate.

    A chain has one step at a time: while one is pending, there is nothing to do. Where the latest is spent,
    the one before it goes on.
    """

    name = "linear"

    def __init__(self, drafts: int) -> None:
        self._ledger = Ledger(drafts)
        self._drafts: list[tuple[tuple[float, float, int], str]] = []  # the best one last
        self._chain: list[str] = []

    def ask(
        self, graph: SearchGraph, rng: random.Random, pending: Sequence[Selection] = ()
    ) -> Selection | None:
        flight = self._ledger.in_flight(pending)
        if self._ledger.drafting(flight):
            return Selection(None, "none", "independent draft")
        if pending:
            return None
        if self._chain:
            return Selection(self._chain[-1], "lineage", f"latest: step {graph.node(self._chain[-1]).step}")
        if self._drafts:
            node = graph.node(self._drafts[-1][1])
            return Selection(node.node_id, "lineage", f"best draft: step {node.step}")
        return self._ledger.rescue(graph, rng, flight)

    def tell(self, selection: Selection, outcome: Outcome) -> None:
        self._ledger.tell(selection, outcome)
        node = outcome.node
        if node is not None and (node.correct or node.status in REPAIRABLE):
            if selection.parent_id is None:
                insort(self._drafts, (node.rank, node.node_id))
            else:
                self._chain.append(node.node_id)
        while self._chain and self._ledger.closed(self._chain[-1]):
            self._chain.pop()
        while self._drafts and self._ledger.closed(self._drafts[-1][1]):
            self._drafts.pop()
