"""Greedy: a few independent drafts, then always the best node, now and then the second best."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

from agent.graph import SearchGraph
from agent.policies.base import Outcome, Selection
from agent.policies.ledger import Ledger

# How often the runner-up is expanded although the best still has something to offer.
_RUNNER_UP = 0.15


class Greedy:
    """Independent drafts, then the best correct node; with a small chance the second best."""

    name = "greedy"

    def __init__(self, drafts: int) -> None:
        self._ledger = Ledger(drafts)

    def ask(
        self, graph: SearchGraph, rng: random.Random, pending: Sequence[Selection] = ()
    ) -> Selection | None:
        flight = self._ledger.in_flight(pending)
        if self._ledger.drafting(flight):
            return Selection(None, "none", "independent draft")
        best = list(islice(self._ledger.fertile(graph, flight), 2))
        if not best:
            return self._ledger.rescue(graph, rng, flight)
        if len(best) > 1 and rng.random() < _RUNNER_UP:
            return Selection(best[1].node_id, "both", f"second best: step {best[1].step}")
        return Selection(best[0].node_id, "both", f"best: step {best[0].step}")

    def tell(self, selection: Selection, outcome: Outcome) -> None:
        self._ledger.tell(selection, outcome)
