"""Drive a selection policy by hand: no model, no kernel, no database. See docs/policies.md.

python examples/policies/by_hand.py [greedy|beam|mcts|evolutionary|linear|one-shot|idea-first]
"""

from __future__ import annotations

import random
import sys

from agent.graph import SearchGraph, SearchNode
from agent.policies import Outcome, Selection, load_policy

IN_FLIGHT = 4
STEPS = 40


def main(name: str = "mcts") -> None:
    policy, dice = load_policy(name, drafts=4), random.Random(1)
    graph = SearchGraph()
    graph.add(SearchNode("root", None, 0, "problem", "", "", "root"))
    quality = {"root": 0.0}
    pending: list[Selection] = []
    for step in range(1, STEPS + 1):
        while len(pending) < IN_FLIGHT:
            selection = policy.ask(graph, random.Random(step * 100 + len(pending)), pending)
            if selection is None:
                break
            pending.append(selection)
        if not pending:
            break
        # Here a model would write candidates and a judge would time them, all at once; one is ready first.
        selection = pending.pop(dice.randrange(len(pending)))
        if selection.want_ideas:
            ideas = tuple(f"idea {dice.randrange(9**9)}" for _ in range(selection.want_ideas))
            policy.tell(selection, Outcome(ideas=ideas))
            print(f"{step:3}  {selection.reason}: {len(ideas)} ideas")  # noqa: T201
            continue
        parent = selection.parent_id or "root"
        speedup = 1 + quality[parent] + dice.gauss(0, 0.2)
        correct = speedup > 0.8
        node = SearchNode(
            f"n{step}", parent, step, "by hand", "", "",
            "correct" if correct else "incorrect", speedup if correct else 0.0, speedup if correct else None,
        )  # fmt: skip
        quality[node.node_id] = speedup - 1
        graph.add(node)
        policy.tell(selection, Outcome(node))
        print(f"{step:3}  {node.fitness:.2f}x  {selection.memory:8}  {selection.reason}")  # noqa: T201
    best = graph.best()
    print(f"best: {best.fitness:.2f}x at step {best.step}" if best else "nothing is correct")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
