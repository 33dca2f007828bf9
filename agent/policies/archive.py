"""A quality-diversity archive (MAP-Elites): the best candidate of every kind of behaviour."""

from __future__ import annotations

from collections.abc import Iterator

from agent.graph import SearchNode
from agent.policies.ledger import Key, best_first

UNKNOWN = "unknown"
Cell = tuple[str, str, str]


def cell_of(node: SearchNode) -> Cell:
    """Bottleneck, language and tile class of a candidate: what kind of solution it is, not how good."""
    behaviour = node.notes.get("behaviour") or {}
    return (
        str(node.diagnosis.get("bottleneck") or UNKNOWN),
        str(behaviour.get("language") or UNKNOWN),
        str(behaviour.get("tile") or UNKNOWN),
    )


class Archive:
    """One elite for each cell, in the order in which the cells were discovered."""

    def __init__(self) -> None:
        self._elites: dict[Cell, tuple[Key, str]] = {}

    def offer(self, node: SearchNode) -> bool:
        """Keep a correct node if its cell has none better. Returns whether it was kept."""
        cell, entry = cell_of(node), (best_first(node), node.node_id)
        if cell in self._elites and self._elites[cell] < entry:
            return False
        self._elites[cell] = entry
        return True

    def __len__(self) -> int:
        return len(self._elites)

    def __iter__(self) -> Iterator[str]:
        return (node_id for _, node_id in self._elites.values())
