"""What a step may know of earlier ones: its parent, the parent's trajectory, siblings, and what to avoid.

`Selection.memory` names the operator, which the policy chooses and the step's event records:

- `none`: a clean slate, for independent drafts; nothing of this run
- `lineage`: the parent's trajectory, from the first draft on
- `siblings`: the parent's other children, to compare with
- `both`: trajectory and siblings
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agent.graph import SearchGraph, SearchNode
from agent.policies.base import Memory

# More would crowd out retrieval; the latest say most.
_LIMIT = 8
# Of what worked: so many of the best, the rest of the limit are the latest.
_BEST = 4
_AVOID_LIMIT = 6
# Negative memory holds so many strategies; those not met again for longest are forgotten.
_CAPACITY = 512
FAILURES = ("compile_error", "incorrect", "runtime_error", "timeout", "rejected")


def parent_context(node: SearchNode, source: str) -> dict[str, Any]:
    """The parent as `prompts.PromptRequest` takes it."""
    kept = {k: node.evaluation.get(k) for k in ("candidate_ms", "log")}
    return {
        "step": node.step,
        "source": source,
        "status": node.status,
        "hypothesis": node.hypothesis,
        "verdict": _verdict(node),
        "speedup": node.speedup,
        "speedup_ci": node.speedup_ci,
        "local_only": node.local_only,
        **kept,
    }


def failed_attempts(
    graph: SearchGraph, skipped: Sequence[Mapping[str, Any]], parent_id: str | None, memory: Memory
) -> list[dict[str, Any]]:
    """Attempts that did not help, oldest first: failures, slower children, duplicates and empty answers.

    `skipped` are the step events that led to no candidate.
    """
    if memory == "none":
        return []
    parent = graph.root if parent_id is None else graph.node(parent_id)
    attempts: list[dict[str, Any]] = []
    if memory in ("siblings", "both"):
        children = graph.children(parent.node_id)
        attempts += [_attempt(node, parent) for node in children if _failed(node, parent)]
        attempts += [
            {k: event.get(k, "") for k in ("step", "outcome", "hypothesis", "error", "local_only")}
            for event in skipped
            if event["parent_id"] == parent_id and event["outcome"] != "exhausted" and event.get("error")
        ]
    if memory in ("lineage", "both"):
        trajectory = graph.lineage(parent.node_id)
        attempts += [_attempt(node, parent) for node in trajectory if not node.is_root and not node.correct]
    return sorted(attempts, key=lambda attempt: int(attempt["step"]))[-_LIMIT:]


def lessons(graph: SearchGraph, parent_id: str | None, memory: Memory) -> list[dict[str, Any]]:
    """Hypotheses that were measured, oldest first: those of the correct candidates that led to the parent and
    of the parent itself, and of those of its children that are faster than it.
    """
    if memory == "none":
        return []
    parent = graph.root if parent_id is None else graph.node(parent_id)
    worked: list[SearchNode] = []
    if memory in ("siblings", "both"):
        children = [n for n in graph.children(parent.node_id) if n.correct and not _failed(n, parent)]
        best = heapq.nlargest(_BEST, children, key=lambda node: node.rank)
        latest = [node for node in children[-_LIMIT:] if node not in best]
        worked += [*best, *latest[len(best) - _LIMIT :]]
    if memory in ("lineage", "both"):
        worked += [node for node in (parent, *graph.lineage(parent.node_id)) if node.correct][:_LIMIT]
    return [
        {
            "step": node.step,
            "verdict": "; ".join(part for part in (_speed(node), _verdict(node)) if part),
            "hypothesis": node.hypothesis,
            "local_only": node.local_only,
        }
        for node in sorted(worked, key=lambda node: node.step)
    ]


class NegativeMemory:
    """Strategies that failed on a problem, and why: failures by their error, refuted hypotheses by what they
    changed. A strategy that failed in several ways or runs is told once, with how often it was met.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], dict[str, Any]] = {}

    def tell(self, node: SearchNode, run_id: str = "") -> None:
        """A judged candidate; `run_id` names an earlier run, empty for the one under way."""
        refuted = node.correct and node.notes.get("verdict", {}).get("word") == "refuted"
        if node.compiler_made or node.notes.get("tuned") or not (refuted or node.status in FAILURES):
            return
        outcome = "refuted" if refuted else node.status
        error = _verdict(node) if refuted else _error(node)
        key = (outcome, (node.hypothesis if refuted or not error else error)[:160].lower())
        before = self._entries.pop(key, None)
        self._entries[key] = {
            "step": node.step,
            "run": run_id,
            "outcome": outcome,
            "hypothesis": node.hypothesis,
            "error": error,
            "times": (before["times"] if before else 0) + 1,
            "local_only": node.local_only,
        }
        if len(self._entries) > _CAPACITY:
            del self._entries[next(iter(self._entries))]

    def entries(self, told: Collection[int] = (), limit: int = _AVOID_LIMIT) -> list[dict[str, Any]]:
        """What to avoid, most often met first, then the latest; without the steps in `told`."""
        latest = [e for e in reversed(self._entries.values()) if e["step"] not in told]
        return sorted(latest, key=lambda entry: -int(entry["times"]))[:limit]


def avoidance(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of negative memory as `prompts.PromptRequest.avoid` takes it."""
    where = f"run {entry['run']}" if entry["run"] else f"step {entry['step']}"
    times = f", {entry['times']} times" if entry["times"] > 1 else ""
    return {
        "strategy": entry["hypothesis"] or "no hypothesis",
        "why": f"{entry['outcome']}{times} ({where}): {entry['error']}",
        "origin": where,
        "local_only": entry["local_only"],
    }


def _failed(node: SearchNode, parent: SearchNode) -> bool:
    if node.correct and not node.fitness:
        return False  # not timed: nothing says that it is no faster
    return not node.correct or (not parent.is_root and node.fitness <= parent.fitness)


def _attempt(node: SearchNode, parent: SearchNode) -> dict[str, Any]:
    outcome, error = node.status, _error(node)
    if node.correct and node.speedup is not None:
        outcome, error = "no faster", f"{node.speedup:.2f}x eager, its parent has {parent.fitness:.2f}x"
        error += f"; {_verdict(node)}" if _verdict(node) else ""
    return {
        "step": node.step,
        "outcome": outcome,
        "hypothesis": node.hypothesis,
        "error": error,
        "local_only": node.local_only,
    }


def _speed(node: SearchNode) -> str:
    return "correct" if node.speedup is None else f"{node.speedup:.2f}x eager"


def _error(node: SearchNode) -> str:
    return str(node.diagnosis.get("error") or node.evaluation.get("reason") or "")


def _verdict(node: SearchNode) -> str:
    """What became of the node's hypothesis, in one line that quotes nothing of the candidate."""
    return str(node.notes.get("verdict", {}).get("text", ""))
