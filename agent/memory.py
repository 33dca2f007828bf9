"""What a step may know of earlier ones: its parent, and what failed before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.graph import SearchGraph, SearchNode
from agent.policies.base import Memory

# More would crowd out retrieval; the latest say most.
_LIMIT = 8


def parent_context(node: SearchNode, source: str) -> dict[str, Any]:
    """The parent as `prompts.PromptRequest` takes it."""
    kept = {k: node.evaluation.get(k) for k in ("candidate_ms", "log")}
    return {
        "step": node.step,
        "source": source,
        "status": node.status,
        "hypothesis": node.hypothesis,
        "speedup": node.speedup,
        "speedup_ci": node.speedup_ci,
        "local_only": node.local_only,
        **kept,
    }


def failed_attempts(
    graph: SearchGraph, skipped: Sequence[Mapping[str, Any]], parent_id: str | None, memory: Memory
) -> list[dict[str, Any]]:
    """Attempts that did not help, oldest first: failures, slower children, duplicates and empty answers.

    `skipped` are the step events that led to no candidate. See `Selection.memory` for what is told when.
    """
    if memory == "none":
        return []
    parent = graph.root if parent_id is None else graph.node(parent_id)
    attempts: list[dict[str, Any]] = []
    if memory in ("siblings", "both"):
        attempts += [
            _attempt(node, parent) for node in graph.children(parent.node_id) if _failed(node, parent)
        ]
        attempts += [
            {k: event.get(k, "") for k in ("step", "outcome", "hypothesis", "error", "local_only")}
            for event in skipped
            if event["parent_id"] == parent_id and event["outcome"] != "exhausted"
        ]
    if memory in ("lineage", "both"):
        lineage = [node for node in graph.lineage(parent.node_id) if not node.is_root and not node.correct]
        attempts += [_attempt(node, parent) for node in lineage]
    return sorted(attempts, key=lambda attempt: int(attempt["step"]))[-_LIMIT:]


def _failed(node: SearchNode, parent: SearchNode) -> bool:
    if node.correct and not node.fitness:
        return False  # not timed: nothing says that it is no faster
    return not node.correct or (not parent.is_root and node.fitness <= parent.fitness)


def _attempt(node: SearchNode, parent: SearchNode) -> dict[str, Any]:
    outcome, error = node.status, str(node.diagnosis.get("error") or node.evaluation.get("reason") or "")
    if node.correct and node.speedup is not None:
        outcome, error = "no faster", f"{node.speedup:.2f}x eager, its parent has {parent.fitness:.2f}x"
    return {
        "step": node.step,
        "outcome": outcome,
        "hypothesis": node.hypothesis,
        "error": error,
        "local_only": node.local_only,
    }
