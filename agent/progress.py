"""The state of a run in memory; rebuilt from the stored events by the same code that advances it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.graph import SearchGraph, SearchNode
from agent.judge import unjudged
from agent.policies import Policy, Selection
from agent.rows import StoredRun
from agent.settings import BestResult, SearchResult
from agent.stop import Progress
from agent.verify import first_judged


class RunProgress:
    """Graph, policy, totals and what was tried. `seq` numbers the next event."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.graph = SearchGraph()
        self.steps = 0
        self.seq = 0
        self.since_best = 0
        self.unjudged = 0  # candidates in a row that the harness could not judge
        self.best_id: str | None = None
        self.tokens = 0
        self.cost_usd: float | None = 0.0
        self.elapsed_s = 0.0
        self.tried: set[str] = set()
        self.by_digest: dict[str, str] = {}
        self.skipped: list[dict[str, Any]] = []

    def account(self, payload: dict[str, Any], node: SearchNode | None) -> None:
        """A step is over: `payload` is its event, `node` its candidate if there was one."""
        self.steps = int(payload["step"])
        self.elapsed_s = float(payload["elapsed_s"])
        self.tokens += int(payload["tokens"])
        cost = payload["cost_usd"]
        self.cost_usd = None if cost is None or self.cost_usd is None else self.cost_usd + cost
        self.tried.update(payload.get("tried", ()))
        if node is None:
            self.skipped.append(payload)
        else:
            self.graph.add(node)
            lost = unjudged(node.status, node.evaluation.get("flags") or ())
            self.unjudged = self.unjudged + 1 if lost else 0
            self.by_digest[node.digest] = node.node_id
        best = self.graph.best()
        best_id = best.node_id if best else None
        self.since_best = 0 if best_id != self.best_id else self.since_best + 1
        self.best_id = best_id
        selection = Selection(payload["parent_id"], payload["memory"], payload["selected"])
        self.policy.tell(selection, node, payload["outcome"] == "exhausted")

    def replay(self, stored: StoredRun) -> None:
        """Live through the stored events again, then take over what a verification has corrected."""
        self.graph.add(stored.graph.root)
        for event in stored.events:
            self.seq = event.seq + 1
            if event.kind == "step":
                found = event.payload.get("node_id")
                self.account(event.payload, first_judged(stored.graph.node(found)) if found else None)
        for node in stored.graph.candidates():
            self.graph.put(node)

    @property
    def best(self) -> SearchNode | None:
        return self.graph.node(self.best_id) if self.best_id else None

    def snapshot(self, elapsed_s: float) -> Progress:
        """What the stop rules look at."""
        best = self.best
        speedup = best.speedup if best is not None and not best.compiler_made else None
        return Progress(self.steps, elapsed_s, speedup, self.since_best)

    def result(
        self, run_id: str, reason: str, elapsed_s: float, winner: SearchNode | None, path: Path | None
    ) -> SearchResult:
        notes = []
        if winner is None:
            notes.append("no candidate was correct")
        elif winner.compiler_made:
            notes.append(
                "only the compiler's own code is correct: nothing better than torch.compile was found"
            )
        return SearchResult(
            run_id=run_id,
            best=_best_result(winner, path) if winner is not None and path is not None else None,
            steps=self.steps,
            valid=sum(node.correct for node in self.graph.candidates()),
            stop_reason=reason,
            tokens=self.tokens,
            cost_usd=self.cost_usd,
            elapsed_s=round(elapsed_s, 3),
            notes=tuple(notes),
        )


def _best_result(node: SearchNode, path: Path) -> BestResult:
    evaluation = node.evaluation
    return BestResult(
        node_id=node.node_id,
        speedup=node.speedup,
        speedup_ci=node.speedup_ci,
        baselines=evaluation.get("baselines") or {},
        path=str(path),
        step=node.step,
        candidate_ms=evaluation.get("candidate_ms"),
        speedups=evaluation.get("speedups") or {},
        compiler_made=node.compiler_made,
        verified="first_evaluation" in node.notes,
    )
