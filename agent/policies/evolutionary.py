"""Evolutionary: islands that evolve apart, migration around a ring, and an archive of diverse elites."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from agent.graph import SearchGraph, SearchNode
from agent.policies.archive import Archive, cell_of
from agent.policies.base import Memory, Outcome, Selection
from agent.policies.ledger import EMPTY_LIMIT, Key, Ledger, Order, best_first

ISLANDS = 4
POPULATION = 8  # of an island
MIGRATION = 10  # steps of an island after which its best node moves on
_TOURNAMENT = 3
# How often the parent is the elite of a random cell of the archive, however slow it is.
_EXPLORATION = 0.2
# A clean slate now and then keeps a lineage from repeating its own mistakes.
_MEMORIES: tuple[tuple[Memory, float], ...] = (
    ("siblings", 0.4),
    ("lineage", 0.25),
    ("both", 0.25),
    ("none", 0.1),
)


class Evolutionary:
    """Independent drafts on four islands, tournaments on each, ring migration, an archive of diverse elites.

    An island keeps its eight fittest nodes, and every ten steps sends the best of them to the next island.
    One step in five starts from the archive instead: from the best node of a random cell, where a cell is a
    bottleneck, a language and a tile class. The memory operator of each step is drawn, too.
    """

    name = "evolutionary"

    def __init__(self, drafts: int) -> None:
        self._ledger = Ledger(drafts)
        self._islands = [Order() for _ in range(ISLANDS)]
        self._archive = Archive()
        self._drafts = 0
        self._steps: Counter[int] = Counter()  # told, by island

    def ask(
        self, graph: SearchGraph, rng: random.Random, pending: Sequence[Selection] = ()
    ) -> Selection | None:
        flight = self._ledger.in_flight(pending)
        if self._ledger.drafting(flight):
            return Selection(None, "none", "independent draft", group=(self._drafts + flight[None]) % ISLANDS)
        busy = self._steps + Counter(s.group for s in pending if s.group is not None)
        island = min(range(ISLANDS), key=lambda i: busy[i])
        elites = self._open(graph, self._archive)
        memory = rng.choices(*zip(*_MEMORIES, strict=True))[0]
        if elites and rng.random() < _EXPLORATION:
            node = rng.choice(elites)
            cell = ", ".join(cell_of(node))
            return Selection(node.node_id, memory, f"elite of {cell}: step {node.step}", group=island)
        members = self._open(graph, self._islands[island])
        if members:
            rivals = rng.sample(members, min(_TOURNAMENT, len(members)))
            winner = max(rivals, key=lambda node: (-(flight[node.node_id] // EMPTY_LIMIT), node.rank))
            reason = f"island {island}, tournament of {len(rivals)}: step {winner.step}"
            return Selection(winner.node_id, memory, reason, group=island)
        # An island without anybody left is settled from the archive, else by whoever was displaced elsewhere.
        settlers = elites or list(islice(self._ledger.fertile(graph, flight), POPULATION))
        if settlers:
            node = rng.choice(settlers)
            return Selection(node.node_id, memory, f"island {island} is settled: step {node.step}", island)
        rescue = self._ledger.rescue(graph, rng, flight)
        return replace(rescue, group=island) if rescue else None

    def _open(self, graph: SearchGraph, node_ids: Iterable[str]) -> list[SearchNode]:
        nodes = (graph.node(node_id) for node_id in node_ids if not self._ledger.closed(node_id))
        return [node for node in nodes if node.correct]  # a verification may have disqualified some

    def tell(self, selection: Selection, outcome: Outcome) -> None:
        self._ledger.tell(selection, outcome)
        node, island = outcome.node, (selection.group or 0) % ISLANDS
        self._drafts += selection.parent_id is None
        self._steps[island] += 1
        if node is not None and node.correct:
            self._admit(island, node.node_id, best_first(node))
            self._archive.offer(node)
        if self._steps[island] % MIGRATION == 0:
            self._migrate(island)

    def _admit(self, island: int, node_id: str, key: Key) -> None:
        self._islands[island].put(node_id, key)
        self._islands[island].trim(POPULATION)

    def _migrate(self, island: int) -> None:
        best = self._islands[island].first()
        if best is not None:
            key, node_id = best
            self._admit((island + 1) % ISLANDS, node_id, key)
