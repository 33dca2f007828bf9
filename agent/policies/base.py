"""The ask/tell interface of a selection policy and what the built-in policies share."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Literal, Protocol

from agent.errors import SettingsInvalid
from agent.graph import SearchGraph, SearchNode

GROUP = "kernelevolve.policies"

# After so many steps in a row that led to no candidate, a parent (or the root) is left alone.
EMPTY_LIMIT = 3

Memory = Literal["none", "siblings", "lineage"]


@dataclass(frozen=True)
class Selection:
    """What to do next: expand `parent_id`, or draft from the specification when it is None.

    `memory` says what the prompt may tell of earlier attempts: nothing (an independent draft), the parent's
    other children, or those and the failures along the parent's lineage. `reason` is shown to people.
    """

    parent_id: str | None
    memory: Memory
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Its part of the step's event."""
        return {"parent_id": self.parent_id, "memory": self.memory, "selected": self.reason}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Selection:
        """The selection of a step's event."""
        return cls(data["parent_id"], data["memory"], data["selected"])


class Policy(Protocol):
    """A policy's state must depend only on what it was told: a resumed run tells it the same again.

    Everything random in `ask` comes from `rng`, which is derived from the run's seed and the step.
    """

    name: str

    def ask(
        self, graph: SearchGraph, rng: random.Random, pending: Sequence[Selection] = ()
    ) -> Selection | None:
        """The next step. `pending` are those that were asked for and not told yet.

        None: nothing can be tried before one of the pending ones is told; with none pending, nothing is left.
        """
        ...

    def tell(self, selection: Selection, node: SearchNode | None, exhausted: bool = False) -> None:
        """What came of a selection: a judged node or none; `exhausted`: its parent has no more to give."""
        ...


class Attempts:
    """Book-keeping of drafts, fruitless steps and exhausted parents."""

    def __init__(self, drafts: int) -> None:
        self._drafts_left = drafts
        self._empty: dict[str | None, int] = {}
        self._closed: set[str | None] = set()

    def tell(self, selection: Selection, node: SearchNode | None, exhausted: bool) -> None:
        parent = selection.parent_id
        if parent is None:
            self._drafts_left -= 1
        self._empty[parent] = 0 if node else self._empty.get(parent, 0) + 1
        if exhausted or self._empty[parent] >= EMPTY_LIMIT:
            self._closed.add(parent)

    def drafting(self, pending: Sequence[Selection]) -> bool:
        """The first phase: independent drafts, those under way included."""
        waiting = sum(selection.parent_id is None for selection in pending)
        return self._drafts_left > waiting and self.open(None)

    def open(self, parent_id: str | None) -> bool:
        return parent_id not in self._closed


_REPAIRABLE = ("compiled", "incorrect", "runtime_error", "timeout", "compile_error", "rejected")


def repair_or_draft(graph: SearchGraph, attempts: Attempts, rng: random.Random) -> Selection | None:
    """What to do while nothing is correct: repair the most promising failure, or draft afresh.

    Failures with the fewest attempts come first, then those that got furthest, then the latest.
    """
    failed = [n for n in graph.candidates() if n.status in _REPAIRABLE and attempts.open(n.node_id)]
    can_draft = attempts.open(None)
    if failed and not (can_draft and rng.random() < 0.5):
        node = min(
            failed, key=lambda n: (len(graph.children(n.node_id)), _REPAIRABLE.index(n.status), -n.step)
        )
        return Selection(node.node_id, "lineage", f"nothing is correct yet: repair step {node.step}")
    if can_draft:
        return Selection(None, "siblings", "nothing is correct yet: another draft")
    return None


def list_policies() -> dict[str, str]:
    """Name and one-line description of every installed policy."""
    found = {}
    for point in sorted(entry_points(group=GROUP), key=lambda p: p.name):
        doc = (point.load().__doc__ or "").strip()
        found[point.name] = doc.splitlines()[0] if doc else ""
    return found


def load_policy(name: str, drafts: int) -> Policy:
    """The policy called `name`, which drafts `drafts` times before it expands. Raises SettingsInvalid."""
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        raise SettingsInvalid(f"unknown policy {name!r}", f"known: {', '.join(sorted(points))}")
    make: Callable[[int], Policy] = points[name].load()
    return make(drafts)
