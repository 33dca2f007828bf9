"""What the built-in policies know of a run: what is correct, what failed, what is spent or in flight."""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from agent.graph import SearchGraph, SearchNode
from agent.policies.base import Outcome, Selection

# After so many steps in a row that led to no candidate, a parent (or the root) is left alone. As many may be
# in flight from it at a time.
EMPTY_LIMIT = 3

# Failures that a further step may repair, the most promising first.
REPAIRABLE = ("compiled", "incorrect", "runtime_error", "timeout", "compile_error", "rejected")

Key = tuple[Any, ...]


class Order:
    """Node ids in ascending order of a key; of 20,000, one is put in or taken out in microseconds."""

    def __init__(self) -> None:
        self._entries: list[tuple[Key, str]] = []
        self._keys: dict[str, Key] = {}

    def put(self, node_id: str, key: Key) -> None:
        """Add a node, or give it another key."""
        self.discard(node_id)
        self._keys[node_id] = key
        insort(self._entries, (key, node_id))

    def discard(self, node_id: str) -> None:
        key = self._keys.pop(node_id, None)
        if key is not None:
            del self._entries[bisect_left(self._entries, (key, node_id))]

    def first(self) -> tuple[Key, str] | None:
        return self._entries[0] if self._entries else None

    def trim(self, size: int) -> None:
        """Keep the first `size` nodes."""
        for _, node_id in self._entries[size:]:
            del self._keys[node_id]
        del self._entries[size:]

    def __iter__(self) -> Iterator[str]:
        return (node_id for _, node_id in self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def best_first(node: SearchNode) -> Key:
    """Sort key of correct nodes: the best comes first."""
    fitness, lower, newness = node.rank
    return (-fitness, -lower, -newness)


class Ledger:
    """Drafts, fruitless steps, spent parents, and the correct and the failed nodes that may be expanded."""

    def __init__(self, drafts: int) -> None:
        self._drafts_left = drafts
        self._empty: dict[str | None, int] = {}
        self._closed: set[str | None] = set()
        self.correct = Order()
        self._any_correct = False
        self._failed = Order()
        self._failures: dict[str, SearchNode] = {}
        self._children: Counter[str] = Counter()

    def tell(self, selection: Selection, outcome: Outcome) -> None:
        parent, node = selection.parent_id, outcome.node
        if parent is None and not selection.want_ideas:
            self._drafts_left -= 1
        fruitful = node is not None or bool(outcome.ideas)
        self._empty[parent] = 0 if fruitful else self._empty.get(parent, 0) + 1
        if outcome.exhausted or self._empty[parent] >= EMPTY_LIMIT:
            self._close(parent)
        if node is None:
            return
        if node.correct:
            self._any_correct = True
            self.correct.put(node.node_id, best_first(node))
        elif node.status in REPAIRABLE:
            self._failures[node.node_id] = node
            self._failed.put(node.node_id, self._promise(node))
        if parent is not None:
            self._children[parent] += 1
            if parent in self._failures and parent not in self._closed:
                self._failed.put(parent, self._promise(self._failures[parent]))

    def _promise(self, node: SearchNode) -> Key:
        """Failures with the fewest attempts come first, then those that got furthest, then the latest."""
        return (self._children[node.node_id], REPAIRABLE.index(node.status), -node.step)

    def _close(self, parent: str | None) -> None:
        self._closed.add(parent)
        if parent is not None:
            self.correct.discard(parent)
            self._failed.discard(parent)

    def in_flight(self, pending: Sequence[Selection]) -> Counter[str | None]:
        """How many steps are pending from each parent."""
        return Counter(selection.parent_id for selection in pending)

    def closed(self, parent_id: str | None) -> bool:
        """Whether a parent (None: drafting) is spent."""
        return parent_id in self._closed

    def drafting(self, flight: Counter[str | None]) -> bool:
        """The first phase, independent drafts: as many as were asked for, and more while none is judged."""
        return (self._drafts_left > flight[None] or not self._empty) and not self.closed(None)

    def fertile(self, graph: SearchGraph, flight: Counter[str | None]) -> Iterator[SearchNode]:
        """Correct nodes that can be expanded, best first, but those with much in flight after the others."""
        for round_ in range(max(flight.values(), default=0) // EMPTY_LIMIT + 1):
            for node_id in self.correct:
                node = graph.node(node_id)
                # A verification may have disqualified it since it was told.
                if node.correct and flight[node_id] // EMPTY_LIMIT == round_:
                    yield node

    def rescue(self, graph: SearchGraph, rng: random.Random, flight: Counter[str | None]) -> Selection | None:
        """What to do while nothing correct can be expanded: repair the best failure, or draft afresh."""
        why = "what is correct is spent" if self._any_correct else "nothing is correct yet"
        failed = next((n for n in self._failed if flight[n] < EMPTY_LIMIT), None)
        if failed is not None and (self.closed(None) or rng.random() < 0.5):
            return Selection(failed, "both", f"{why}: repair step {graph.node(failed).step}")
        if not self.closed(None):
            return Selection(None, "siblings", f"{why}: another draft")
        return None
