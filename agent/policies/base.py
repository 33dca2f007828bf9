"""The ask/tell interface of a selection policy."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Literal, Protocol

from agent.errors import SettingsInvalid
from agent.graph import SearchGraph, SearchNode

GROUP = "kernelevolve.policies"

# What the prompt may tell of earlier attempts: nothing (a clean slate), the parent's other children, what led
# to the parent, or both.
Memory = Literal["none", "siblings", "lineage", "both"]


# Who made a step's candidate, or what is shown beside its prompt, where the engine adds it.
TUNE, WARM_START, EXAMPLE = "tune", "warm-start", "example"


@dataclass(frozen=True)
class Selection:
    """What to do next: expand `parent_id`, or draft from the specification when it is None.

    `memory` is the operator that decides what the prompt tells of earlier attempts; `reason` is shown to
    people. `group` is the policy's own label of what the step belongs to (an island, a level, a round).
    With `want_ideas`, the generator is asked for so many optimisations in words, and for no candidate; `idea`
    is one of those, to be implemented. `injected` is what the engine adds to what the policy wants: a ready
    candidate (a number to tune, a find of an earlier run), or an example for the prompt. All of it is stored
    with the step.
    """

    parent_id: str | None
    memory: Memory
    reason: str
    group: int | None = None
    want_ideas: int = 0
    idea: str = ""
    injected: Mapping[str, Any] | None = None

    @property
    def unasked(self) -> bool:
        """Whether the candidate is there already, so that no generator is asked."""
        return self.injected is not None and self.injected.get("by") in (TUNE, WARM_START)

    def to_json(self) -> dict[str, Any]:
        """Its part of the step's event."""
        data: dict[str, Any] = {
            "parent_id": self.parent_id,
            "memory": self.memory,
            "selected": self.reason,
        }
        if self.group is not None:
            data["group"] = self.group
        if self.want_ideas:
            data["want_ideas"] = self.want_ideas
        if self.idea:
            data["idea"] = self.idea
        if self.injected is not None:
            data["injected"] = dict(self.injected)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Selection:
        """The selection of a step's event."""
        return cls(
            data["parent_id"],
            data["memory"],
            data["selected"],
            data.get("group"),
            data.get("want_ideas", 0),
            data.get("idea", ""),
            data.get("injected"),
        )


@dataclass(frozen=True)
class Outcome:
    """What came of a selection: a judged node, ideas in words, or neither.

    `exhausted`: its parent (drafting, where that is None) has nothing more to give.
    """

    node: SearchNode | None = None
    ideas: tuple[str, ...] = ()
    exhausted: bool = False


class Policy(Protocol):
    """Chooses what is done next. Constructed with the number of independent drafts that come first.

    `ask` changes nothing that matters: a policy's state follows from what it was told, so that a resumed run
    tells it the same again, in the same order. Everything random in `ask` comes from `rng`, which is derived
    from the run's seed and the step.
    """

    name: str

    def ask(
        self, graph: SearchGraph, rng: random.Random, pending: Sequence[Selection] = ()
    ) -> Selection | None:
        """The next step. `pending` are those that were asked for and not told yet.

        None: nothing can be tried before one of the pending ones is told; with none pending, nothing is left.
        """
        ...

    def tell(self, selection: Selection, outcome: Outcome) -> None:
        """What came of a selection, in order of completion. The graph has the node already."""
        ...


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
