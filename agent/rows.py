"""The records of a run and how nodes map to rows of the knowledge base."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from agent.graph import SearchGraph, SearchNode
from agent.settings import SearchResult, SearchSettings
from kb.tables import Node

if TYPE_CHECKING:
    from prompts.record import PromptRecord


@dataclass(frozen=True)
class RunInfo:
    """One run, for lists. `steps` counts finished steps, with and without a candidate."""

    run_id: str
    problem: str
    target: str
    policy: str
    generator: str
    state: str
    stop_reason: str
    steps: int
    best_node_id: str | None
    best_speedup: float | None
    tokens: int
    cost_usd: float
    seed: int
    created: datetime
    updated: datetime


@dataclass(frozen=True)
class StoredEvent:
    """What happened, in order; `payload` is JSON."""

    seq: int
    kind: str
    payload: dict[str, Any]


@dataclass(frozen=True)
class StoredRun:
    """Everything needed to show or to continue a run."""

    info: RunInfo
    settings: SearchSettings
    problem_source: str
    facts: dict[str, Any]
    graph: SearchGraph
    events: list[StoredEvent]

    def result(self) -> SearchResult | None:
        """What a finished run came to; None for a run that can be continued."""
        if self.info.state != "finished":
            return None
        last = next(event for event in reversed(self.events) if event.kind == "finished")
        return SearchResult.from_json(last.payload)


@dataclass(frozen=True)
class StepRecord:
    """What one step adds. `payload` is the step's event; `tokens` and `cost_usd` are totals of the run."""

    payload: dict[str, Any]
    tokens: int
    cost_usd: float
    node: SearchNode | None = None
    prompt: PromptRecord | None = None
    best_node_id: str | None = None
    credit: float | None = None  # what the prompt's passages get, see `agent.credit`


def to_row(run_id: str, node: SearchNode) -> Node:
    """The table row of a node."""
    low, high = node.speedup_ci or (None, None)
    return Node(
        id=node.node_id,
        run_id=run_id,
        parent_id=node.parent_id,
        step=node.step,
        generator=node.generator,
        source_sha=node.source_sha,
        digest=node.digest,
        status=node.status,
        fitness=node.fitness,
        speedup=node.speedup,
        speedup_lo=low,
        speedup_hi=high,
        hypothesis=node.hypothesis,
        genome=node.genome,
        prompt_sha=node.prompt_sha,
        evaluation=node.evaluation,
        diagnosis=node.diagnosis,
        compiler_made=node.compiler_made,
        notes=node.notes,
    )


def from_row(row: Any) -> SearchNode:
    """The node of a table row: a Node, or a plain row with its columns."""
    low, high = row.speedup_lo, row.speedup_hi
    return SearchNode(
        node_id=row.id,
        parent_id=row.parent_id,
        step=row.step,
        generator=row.generator,
        source_sha=row.source_sha,
        digest=row.digest,
        status=row.status,
        fitness=row.fitness,
        speedup=row.speedup,
        speedup_ci=(low, high) if low is not None and high is not None else None,
        hypothesis=row.hypothesis,
        genome=row.genome,
        prompt_sha=row.prompt_sha,
        compiler_made=row.compiler_made,
        evaluation=row.evaluation,
        diagnosis=row.diagnosis,
        notes=row.notes,
    )
