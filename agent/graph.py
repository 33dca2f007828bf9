"""The search graph: candidates, their lineage and their fitness. Pure data, no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

ROOT = "root"


@dataclass(frozen=True)
class SearchNode:
    """A judged candidate. The root (status `root`) stands for the specification with its baseline.

    `fitness` is the speedup of a correct candidate and 0 for any failure. `evaluation` and `diagnosis` are
    JSON objects.
    """

    node_id: str
    parent_id: str | None
    step: int
    generator: str
    source_sha: str
    digest: str
    status: str
    fitness: float = 0.0
    speedup: float | None = None
    speedup_ci: tuple[float, float] | None = None
    hypothesis: str = ""
    genome: dict[str, Any] | None = None
    prompt_sha: str = ""
    compiler_made: bool = False
    evaluation: dict[str, Any] = field(default_factory=dict)
    diagnosis: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def is_root(self) -> bool:
        return self.status == ROOT

    @property
    def correct(self) -> bool:
        return self.status == "correct"

    @property
    def local_only(self) -> bool:
        """Whether local-only passages shaped it, so that its words may not leave this machine."""
        return bool(self.notes.get("local_only"))

    @property
    def rank(self) -> tuple[float, float, int]:
        """Sort key, larger is better: fitness, then the interval's lower end, then the earlier node."""
        lower = self.speedup_ci[0] if self.speedup_ci else 0.0
        return (self.fitness, lower if math.isfinite(lower) else 0.0, -self.step)


def fitness_of(evaluation: Mapping[str, Any]) -> float:
    """Speedup of a correct, timed evaluation; 0 for every failure and for numbers that are no speedup.

    Where time means nothing and the evaluation carries a `cost` to minimise, its inverse.
    """
    if evaluation.get("status") != "correct":
        return 0.0
    speedup, cost = evaluation.get("speedup"), evaluation.get("cost")
    if speedup is not None:
        return float(speedup) if math.isfinite(speedup) and speedup > 0 else 0.0
    if cost is not None:
        return 1.0 / float(cost) if math.isfinite(cost) and cost > 0 else 0.0
    return 0.0


class SearchGraph:
    """Nodes in order of arrival, with children and lineage."""

    def __init__(self) -> None:
        self._nodes: dict[str, SearchNode] = {}
        self._children: dict[str, list[str]] = {}
        self._root_id: str | None = None
        self._best: SearchNode | None = None

    def add(self, node: SearchNode) -> None:
        """Append a node. Raises ValueError for a duplicate, an unknown parent or a second root."""
        if node.node_id in self._nodes:
            raise ValueError(f"node {node.node_id} is in the graph already")
        if node.parent_id is None:
            if self._root_id is not None or not node.is_root:
                raise ValueError(f"node {node.node_id} has no parent")
            self._root_id = node.node_id
        elif node.parent_id not in self._nodes:
            raise ValueError(f"node {node.node_id} has an unknown parent {node.parent_id}")
        else:
            self._children[node.parent_id].append(node.node_id)
        self._nodes[node.node_id] = node
        self._children[node.node_id] = []
        self._rise(node)

    def put(self, node: SearchNode) -> None:
        """Replace a node that is in the graph, after a later look at it; the structure stays."""
        if self._nodes[node.node_id].parent_id != node.parent_id:
            raise ValueError(f"node {node.node_id} cannot change its parent")
        self._nodes[node.node_id] = node
        if self._best is not None and self._best.node_id == node.node_id:
            self._best = max((n for n in self if n.correct), key=standing, default=None)
        else:
            self._rise(node)

    def _rise(self, node: SearchNode) -> None:
        if node.correct and (self._best is None or standing(node) > standing(self._best)):
            self._best = node

    @property
    def root(self) -> SearchNode:
        if self._root_id is None:
            raise ValueError("the graph is empty")
        return self._nodes[self._root_id]

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[SearchNode]:
        return iter(self._nodes.values())

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._nodes

    def node(self, node_id: str) -> SearchNode:
        return self._nodes[node_id]

    def children(self, node_id: str) -> list[SearchNode]:
        return [self._nodes[child] for child in self._children[node_id]]

    def lineage(self, node_id: str) -> list[SearchNode]:
        """From the node's parent up to the root."""
        path = []
        parent = self._nodes[node_id].parent_id
        while parent is not None:
            path.append(self._nodes[parent])
            parent = self._nodes[parent].parent_id
        return path

    def candidates(self) -> list[SearchNode]:
        """Every node but the root."""
        return [node for node in self if not node.is_root]

    def ranking(self) -> list[SearchNode]:
        """Correct nodes, best first; what a compiler made comes after everything else.

        A run never counts parity with the compiler as a win, so its code is reported only when nothing
        else is correct.
        """
        return sorted((node for node in self if node.correct), key=standing, reverse=True)

    def best(self) -> SearchNode | None:
        """The first of the ranking, known without looking through the graph."""
        return self._best


def standing(node: SearchNode) -> tuple[float, ...]:
    """Sort key of correct nodes, larger is better: `rank`, behind it whatever a compiler made."""
    return (float(not node.compiler_made), *node.rank)
