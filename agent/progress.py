"""The state of a run in memory; rebuilt from the stored events by the same code that advances it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agent.diagnose import roofline_share
from agent.earlier import Earlier
from agent.experience import Experience, choose
from agent.graph import SearchGraph, SearchNode, standing
from agent.judge import unjudged
from agent.models import ModelBandit, reward_of
from agent.policies import Outcome, Policy, Selection
from agent.rows import StoredEvent, StoredRun
from agent.settings import BestResult, SearchResult
from agent.stop import Progress
from agent.verify import first_judged


class RunProgress:
    """Graph, policy, totals and what was tried. `seq` numbers the next event."""

    def __init__(self, policy: Policy, experience: Experience | None = None) -> None:
        self.policy = policy
        self.experience = experience or Experience()
        self.graph = SearchGraph()
        self.steps = 0  # told
        self.last_step = 0  # the highest number that was asked
        self.pending: dict[int, Selection] = {}  # asked and not told, by step
        self.asked_of: dict[int, str] = {}  # who is to answer those, where there are several
        self.bandit = ModelBandit()
        self.seq = 0
        self.since_best = 0
        self.unjudged = 0  # candidates in a row that the harness could not judge
        self.best_id: str | None = None
        self.tokens = 0
        self.metered = True
        self.cost_usd: float | None = 0.0
        self.elapsed_s = 0.0
        self.tried: set[str] = set()
        self.by_digest: dict[str, str] = {}
        self.skipped: list[dict[str, Any]] = []

    def asked(self, step: int, selection: Selection, generator: str = "") -> None:
        """A step was decided and is under way."""
        self.pending[step] = selection
        self.asked_of[step] = generator
        self.last_step = max(self.last_step, step)

    def after(self, payload: dict[str, Any], node: SearchNode | None) -> tuple[int, float | None, str | None]:
        """Tokens, cost and best node as they will be when this step is accounted for."""
        cost = payload["cost_usd"]
        total = None if cost is None or self.cost_usd is None else self.cost_usd + cost
        best = self.best
        if node is not None and node.correct and (best is None or standing(node) > standing(best)):
            best = node
        return self.tokens + int(payload["tokens"]), total, best.node_id if best else None

    def account(self, payload: dict[str, Any], node: SearchNode | None) -> None:
        """A step is over: `payload` is its event, `node` its candidate if there was one."""
        self.tokens, self.cost_usd, best_id = self.after(payload, node)
        self.pending.pop(payload["step"], None)
        self.asked_of.pop(payload["step"], None)
        self.last_step = max(self.last_step, payload["step"])
        self.steps += 1
        self.metered = self.metered and not payload.get("unmetered")
        self.elapsed_s = float(payload["elapsed_s"])
        self.tried.update(payload.get("tried", ()))
        if node is None and payload["outcome"] != "ideas":
            self.skipped.append(payload)
        elif node is not None:
            self.graph.add(node)
            lost = unjudged(node.status, node.evaluation.get("flags") or ())
            self.unjudged = self.unjudged + 1 if lost else 0
            self.by_digest[node.digest] = node.node_id
        self._score(payload, node)
        is_best = best_id != self.best_id
        self.since_best = 0 if is_best else self.since_best + 1
        self.best_id = best_id
        selection = Selection.from_json(payload)
        self.experience.tell(selection, node, self.best, is_best=is_best)
        # The policy is told last, when the graph has the node.
        outcome = Outcome(node, tuple(payload.get("ideas", ())), payload["outcome"] == "exhausted")
        self.policy.tell(selection, outcome)

    def apply(self, event: StoredEvent, graph: SearchGraph) -> None:
        """What a stored event did; `graph` has the node that it is about."""
        if event.kind == "asked":
            order = event.payload.get("generators") or [""]
            self.asked(event.payload["step"], Selection.from_json(event.payload), order[0])
        elif event.kind == "earlier":
            self.experience.begin(Earlier.from_json(event.payload))
        elif event.kind == "step":
            found = event.payload.get("node_id")
            self.account(event.payload, first_judged(graph.node(found)) if found else None)
        self.seq = event.seq + 1

    def _score(self, payload: dict[str, Any], node: SearchNode | None) -> None:
        """Whoever made this candidate is asked more or less often from now on."""
        name = payload.get("generator")
        if not name or payload["outcome"] == "ideas" or (node is not None and self.unjudged):
            return
        if Selection.from_json(payload).unasked:
            return
        parent = self.graph.node(payload["parent_id"]) if payload["parent_id"] else None
        self.bandit.tell(name, reward_of(node, parent), int(payload["tokens"]), payload["cost_usd"])

    def choose(
        self, source_of: Callable[[SearchNode], str], rng: Callable[[str], random.Random]
    ) -> Selection | None:
        """The next step, or None (`agent.experience.choose`)."""
        pending = tuple(self.pending.values())
        return choose(
            self.experience, self.policy, self.graph, pending, tried=self.tried, source_of=source_of, rng=rng
        )

    def amend(self, node: SearchNode) -> None:
        """A later look has changed the verdict on a node."""
        self.graph.put(node)
        best = self.graph.best()
        self.best_id = best.node_id if best else None

    def replay(self, stored: StoredRun) -> Iterator[StoredEvent]:
        """Live through the stored events again; each is yielded when the state is as it was just after it.

        At the end what a verification has corrected is taken over.
        """
        self.graph.add(stored.graph.root)
        for event in stored.events:
            self.apply(event, stored.graph)
            yield event
        for node in stored.graph.candidates():
            if node is not self.graph.node(node.node_id):
                self.amend(node)

    @property
    def best(self) -> SearchNode | None:
        return self.graph.node(self.best_id) if self.best_id else None

    def snapshot(self, elapsed_s: float, *, foreseen: bool = False) -> Progress:
        """What the stop rules look at; `foreseen` counts pending steps as told, as dear as earlier ones."""
        best = self.best if self.best is not None and not self.best.compiler_made else None
        waiting = len(self.pending) if foreseen else 0
        share = 1 + waiting / self.steps if self.steps else 1.0
        return Progress(
            steps=self.steps + waiting,
            elapsed_s=elapsed_s,
            best_speedup=best.speedup if best else None,
            since_best=self.since_best,
            tokens=round(self.tokens * share),
            cost_usd=None if self.cost_usd is None else self.cost_usd * share,
            roofline=roofline_share(best.diagnosis) if best else None,
            metered=self.metered,
        )

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
