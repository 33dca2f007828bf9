"""Beam: level by level, the best few of each are expanded alike."""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from agent.graph import SearchGraph
from agent.policies.base import Outcome, Selection
from agent.policies.ledger import Ledger, Order, best_first

_WIDTH = 4
_BRANCHES = 4


class Beam:
    """Independent drafts, then level by level the four best nodes, each expanded four times.

    There is no barrier between levels: while the last steps of one are in flight, the next one is expanded as
    far as it is known, and a latecomer that makes it into its level's beam is still expanded. When a level
    comes to nothing correct, the beam starts again from the best node that can still be expanded.
    """

    name = "beam"

    def __init__(self, drafts: int) -> None:
        self._ledger = Ledger(drafts)
        self._levels: list[Order] = []
        self._level_of: dict[str, int] = {}
        self._unfinished: list[int] = []  # levels whose beam is not expanded yet, ascending
        self._expansions: Counter[str] = Counter()
        self._parents: set[str] = set()

    def ask(
        self, graph: SearchGraph, rng: random.Random, pending: Sequence[Selection] = ()
    ) -> Selection | None:
        flight = self._ledger.in_flight(pending)
        if self._ledger.drafting(flight):
            return Selection(None, "none", "independent draft", group=0)
        for level in self._unfinished:
            waiting = [
                (self._expansions[node_id] + flight[node_id], place, node_id)
                for place, node_id in enumerate(self._beam(level))
                if self._expansions[node_id] + flight[node_id] < _BRANCHES
                and not self._ledger.closed(node_id)
                and graph.node(node_id).correct
            ]
            if waiting:
                _, place, node_id = min(waiting)
                reason = f"level {level}, place {place + 1}: step {graph.node(node_id).step}"
                return Selection(node_id, "both", reason, group=level + 1)
        node = next(self._ledger.fertile(graph, flight), None)
        if node is not None:
            level = self._level_of[node.node_id] + 1
            return Selection(node.node_id, "both", f"beside the beam: step {node.step}", group=level)
        return self._ledger.rescue(graph, rng, flight)

    def tell(self, selection: Selection, outcome: Outcome) -> None:
        self._ledger.tell(selection, outcome)
        parent, node = selection.parent_id, outcome.node
        level = 0
        if parent is not None:
            level = self._level_of[parent] + 1
            self._expansions[parent] += 1
        if node is not None:
            self._level_of[node.node_id] = level
            if parent is not None:
                self._parents.add(parent)
            if node.correct:
                if level >= len(self._levels):
                    self._levels += [Order() for _ in range(level + 1 - len(self._levels))]
                self._levels[level].put(node.node_id, best_first(node))
                self._note(level)
        if parent is not None and level <= len(self._levels):
            if self._ledger.closed(parent) and parent not in self._parents:
                self._levels[level - 1].discard(parent)  # it led to nothing: the next best takes its place
            self._note(level - 1)

    def _beam(self, level: int) -> list[str]:
        return list(islice(self._levels[level], _WIDTH))

    def _note(self, level: int) -> None:
        """Keep track of whether a level has anything left to expand."""
        finished = all(
            self._expansions[node_id] >= _BRANCHES or self._ledger.closed(node_id)
            for node_id in self._beam(level)
        )
        at = bisect_left(self._unfinished, level)
        known = at < len(self._unfinished) and self._unfinished[at] == level
        if finished and known:
            del self._unfinished[at]
        elif not finished and not known:
            insort(self._unfinished, level)
