"""A selection policy of your own: see docs/policies.md."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agent.graph import SearchGraph
from agent.policies import Outcome, Selection


class Patient:
    """Drafts, then the node that was expanded least, the faster one of equals; now and then another draft."""

    name = "patient"

    def __init__(self, drafts: int) -> None:
        self._drafts_left = drafts
        self._expanded: dict[str, int] = {}  # correct nodes, with how often they were a parent

    def ask(
        self, graph: SearchGraph, rng: random.Random, pending: Sequence[Selection] = ()
    ) -> Selection | None:
        parents = [selection.parent_id for selection in pending]
        if self._drafts_left > parents.count(None) or not self._expanded or rng.random() < 0.05:
            return Selection(None, "none", "a draft")
        times, node = min(
            ((n + parents.count(node_id), graph.node(node_id)) for node_id, n in self._expanded.items()),
            key=lambda pair: (pair[0], -pair[1].fitness),
        )
        return Selection(node.node_id, "siblings", f"expanded {times} times: step {node.step}")

    def tell(self, selection: Selection, outcome: Outcome) -> None:
        if selection.parent_id is None:
            self._drafts_left -= 1
        elif outcome.exhausted:
            self._expanded.pop(selection.parent_id, None)
        elif selection.parent_id in self._expanded:
            self._expanded[selection.parent_id] += 1
        if outcome.node is not None and outcome.node.correct:
            self._expanded[outcome.node.node_id] = 0
