"""What each model of a run was asked, cost and came to, from the run's own record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.graph import SearchGraph


@dataclass
class ModelUsage:
    """Steps of one generator. `cost_usd` is None where that of one step is unknown, `metered` False where an
    answer came without usage figures.
    """

    generator: str
    steps: int = 0
    correct: int = 0
    best_speedup: float | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = 0.0
    metered: bool = True


def usage(steps: Iterable[Mapping[str, Any]], graph: SearchGraph) -> list[ModelUsage]:
    """One entry for each generator, in order of their first answers. `steps` are the payloads of step events;
    those that say nothing of a generator are left out.
    """
    found: dict[str, ModelUsage] = {}
    for payload in steps:
        name = payload.get("generator")
        if not name:
            continue
        entry = found.setdefault(name, ModelUsage(name))
        entry.steps += 1
        entry.tokens_in += payload.get("tokens_in", 0)
        entry.tokens_out += payload.get("tokens_out", 0)
        cost = payload.get("cost_usd")
        entry.cost_usd = None if cost is None or entry.cost_usd is None else entry.cost_usd + cost
        entry.metered = entry.metered and not payload.get("unmetered")
        node = graph.node(payload["node_id"]) if payload.get("node_id") else None
        if node is not None and node.correct:
            entry.correct += 1
            entry.best_speedup = max(entry.best_speedup or 0.0, node.speedup or 0.0) or None
    return list(found.values())
