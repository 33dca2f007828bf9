"""A graph and a policy that are told the same things, by hand or by a synthetic landscape."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from agent.graph import SearchGraph, SearchNode
from agent.policies import Outcome, Policy, Selection, load_policy

Judge = Callable[[Selection, "SearchNode", random.Random], dict[str, Any]]


def root() -> SearchNode:
    return SearchNode("root", None, 0, "problem", "", "", "root")


class World:
    """`log` holds what was told, in order."""

    def __init__(self, name: str, drafts: int = 2) -> None:
        self.policy: Policy = load_policy(name, drafts)
        self.drafts = drafts
        self.graph = SearchGraph()
        self.graph.add(root())
        self.step = 0
        self.log: list[tuple[Selection, Outcome]] = []
        self.x: dict[str, float] = {"root": 0.0}

    def ask(self, seed: int = 0, pending: tuple[Selection, ...] = ()) -> Selection | None:
        return self.policy.ask(self.graph, random.Random(seed), pending)

    def told(self, selection: Selection, outcome: Outcome) -> None:
        self.policy.tell(selection, outcome)
        self.log.append((selection, outcome))

    def tell(
        self, selection: Selection, speedup: float | None, status: str = "correct", **kwargs: Any
    ) -> SearchNode:
        """A node came of it; `speedup` None with another status is a failure."""
        self.step += 1
        node = SearchNode(
            f"n{self.step}", selection.parent_id or "root", self.step, "g", "", "", status,
            fitness=speedup or 0.0, speedup=speedup, **kwargs,
        )  # fmt: skip
        self.graph.add(node)
        self.told(selection, Outcome(node))
        return node

    def nothing(self, selection: Selection, exhausted: bool = False) -> None:
        self.told(selection, Outcome(exhausted=exhausted))

    def drafted(self, *speedups: float) -> None:
        for speedup in speedups:
            self.tell(self.ask(), speedup)

    def rebuilt(self) -> Policy:
        """A new policy that was told the same."""
        policy = load_policy(self.policy.name, self.drafts)
        for selection, outcome in self.log:
            policy.tell(selection, outcome)
        return policy

    def search(self, value: Callable[[float], float], steps: int, seed: int = 0, flight: int = 1) -> float:
        """Climb a landscape: a child's `x` lies near its parent's, `value(x)` is its speedup (0: it fails).

        `flight` steps are under way at a time and end in random order. Returns the best speedup.
        """
        rng = random.Random(seed)
        pending: list[Selection] = []
        asked = told = 0
        while told < steps:
            while len(pending) < flight and asked < steps:
                selection = self.ask(seed=asked * 1000 + seed, pending=tuple(pending))
                if selection is None:
                    break
                pending.append(selection)
                asked += 1
            assert pending, "nothing is pending and nothing is asked for"
            selection = pending.pop(rng.randrange(len(pending)))
            told += 1
            if selection.want_ideas:
                words = [
                    f"{rng.random():.6f} {rng.random():.6f} {rng.random():.6f}"
                    for _ in range(selection.want_ideas)
                ]
                self.told(selection, Outcome(ideas=tuple(words)))
                continue
            x = self.x[selection.parent_id or "root"] + rng.gauss(0, 1.0)
            speed = value(x)
            node = self.tell(selection, speed or None, "correct" if speed else "incorrect")
            self.x[node.node_id] = x
        return max((n.fitness for n in self.graph), default=0.0)
