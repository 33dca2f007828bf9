"""Monte Carlo tree search: UCT decides which part of the tree deserves the next step."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

from agent.graph import SearchGraph
from agent.policies.base import Memory, Outcome, Selection
from agent.policies.ledger import REPAIRABLE, Ledger

# Weight of exploration, for values between 0 and 1.
_EXPLORATION = 0.3


class Mcts:
    """Independent drafts, then upper confidence bounds on the tree (UCT) with progressive widening.

    A node's value is what the candidates of its subtree reached, relative to the best of the run: half their
    mean, half the best of them. A node is given another child while it has fewer than the square root of its
    visits; the specification's children are drafts. Steps in flight count as visits that came to nothing,
    which spreads concurrent steps over the tree (virtual loss). Subtrees that are spent are left out.
    """

    name = "mcts"

    def __init__(self, drafts: int) -> None:
        self._ledger = Ledger(drafts)
        self._parent: dict[str, str | None] = {}
        self._visits: Counter[str | None] = Counter()
        self._total: dict[str | None, float] = {None: 0.0}
        self._best: dict[str | None, float] = {None: 0.0}
        self._width: Counter[str | None] = Counter()  # children, dead ones too
        # Children in whose subtrees something can be expanded, as ordered sets.
        self._alive: dict[str | None, dict[str, None]] = {None: {}}

    def ask(
        self,
        graph: SearchGraph,
        rng: random.Random,  # noqa: ARG002 - UCT is deterministic
        pending: Sequence[Selection] = (),
    ) -> Selection | None:
        flight = self._ledger.in_flight(pending)
        if self._ledger.drafting(flight):
            return Selection(None, "none", "independent draft")
        virtual: Counter[str | None] = Counter()
        for selection in pending:
            for node_id in self._path(selection.parent_id):
                virtual[node_id] += 1
        at: str | None = None
        while True:
            visits = self._visits[at] + virtual[at]
            below = self._alive[at]
            can_expand = not self._ledger.closed(at)
            if can_expand and (not below or self._width[at] + flight[at] < math.sqrt(visits)):
                return self._expand(graph, at, visits)
            if not below:
                return None  # the specification itself is spent, and everything below it
            at = max(below, key=lambda child: self._bound(child, visits, virtual[child]))

    def _expand(self, graph: SearchGraph, at: str | None, visits: int) -> Selection:
        if at is None:
            return Selection(None, "siblings", f"UCT: another draft after {visits} visits")
        memory: Memory = "both" if self._width[at] else "lineage"
        return Selection(at, memory, f"UCT: step {graph.node(at).step} after {visits} visits")

    def _bound(self, child: str, parent_visits: int, virtual: int) -> float:
        visits = self._visits[child] + virtual
        scale = self._best[None] or 1.0
        value = 0.5 * (self._total[child] / visits + self._best[child]) / scale
        return value + _EXPLORATION * math.sqrt(math.log(max(parent_visits, 1)) / visits)

    def _path(self, node_id: str | None) -> list[str | None]:
        path = [node_id]
        while node_id is not None:
            node_id = self._parent[node_id]
            path.append(node_id)
        return path

    def tell(self, selection: Selection, outcome: Outcome) -> None:
        self._ledger.tell(selection, outcome)
        parent, node = selection.parent_id, outcome.node
        reward = node.fitness if node is not None else 0.0
        if node is not None:
            own = node.node_id
            self._parent[own] = parent
            self._visits[own], self._total[own], self._best[own] = 1, reward, reward
            self._alive[own] = {}
            self._width[parent] += 1
            if node.correct or node.status in REPAIRABLE:
                self._revive(own)
        for node_id in self._path(parent):
            self._visits[node_id] += 1
            self._total[node_id] += reward
            self._best[node_id] = max(self._best[node_id], reward)
        self._wither(parent)

    def _revive(self, node_id: str) -> None:
        """Something below can be expanded: a child may arrive when its parent was given up already."""
        while node_id not in self._alive[self._parent[node_id]]:
            parent = self._parent[node_id]
            self._alive[parent][node_id] = None
            if parent is None:
                return
            node_id = parent

    def _wither(self, node_id: str | None) -> None:
        while node_id is not None and self._ledger.closed(node_id) and not self._alive[node_id]:
            self._alive[self._parent[node_id]].pop(node_id, None)
            node_id = self._parent[node_id]
