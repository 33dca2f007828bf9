"""Runs that are written step by step, as a search does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent import RunStore, SearchSettings
from agent.graph import SearchNode
from agent.judge import judged
from agent.rows import StepRecord
from agent.settings import SearchResult
from agent.verify import verified
from kb import KnowledgeBase
from prompts.record import PromptRecord, Provenance

RUN = "run-1"


def verdict(speedup: float | None, status: str = "correct") -> dict[str, Any]:
    correct = speedup is not None
    return {
        "status": "correct" if correct else status,
        "speedup": speedup,
        "speedup_ci": [speedup * 0.9, speedup * 1.1] if correct else None,
        "timed": correct,
        "baselines": {"eager_ms": 2.0, "compile_ms": None},
    }


class Recorder:
    """Writes a run step by step, as a search does."""

    def __init__(self, kb: KnowledgeBase, run_id: str = RUN, problem: str = "# problem") -> None:
        self.kb, self.store, self.run_id = kb, RunStore(kb), run_id
        settings = SearchSettings("p.py")
        self.nodes: dict[int, SearchNode] = {
            0: self.store.create(run_id, "p", problem, {"eager_ms": 2.0}, settings)
        }
        self.seq = 0
        self.number = 0

    def ask(self, number: int) -> None:
        self.store.ask(self.run_id, self.seq, number, {"step": number})
        self.seq += 1

    def step(
        self,
        parent: int,
        evaluation: dict[str, Any],
        *,
        chunks: Sequence[tuple[str, str]] = (),
        memory: str = "siblings",
        source: str = "",
        idea: str = "",
        injected: dict[str, Any] | None = None,
        **about: Any,
    ) -> SearchNode:
        number = self.number + 1
        text = "" if injected and injected["by"] != "example" else f"prompt of step {number}"
        uses = [Provenance("guidance", chunk, citation, 1.0) for chunk, citation in chunks]
        prompt = PromptRecord(text, 4, {}, uses, self.kb.blobs.put(text) if text else "")
        node = SearchNode(
            node_id=f"{self.run_id}-{number:04d}",
            parent_id=self.nodes[parent].node_id,
            step=number,
            generator="stub",
            source_sha=self.kb.blobs.put(source or f"class ModelNew:\n    X = {number}\n"),
            digest=str(number),
            status="",
            hypothesis=f"idea {number}",
            prompt_sha=prompt.digest,
            diagnosis={"bottleneck": "memory"},
            **about,
        )
        node = judged(node, evaluation)
        self.nodes[number] = node
        outcome = {
            "outcome": "evaluated",
            "node_id": node.node_id,
            "memory": memory,
            "idea": idea,
            "injected": injected,
        }
        self._append(parent, outcome, node=node, prompt=prompt)
        return node

    def nothing(self, parent: int, **about: Any) -> None:
        self._append(parent, {"outcome": "no_candidate", "error": "?", **about})

    def _append(self, parent: int, outcome: dict[str, Any], **kept: Any) -> None:
        """`kept` is what the step keeps: its node and its prompt."""
        payload = {
            "step": self.number + 1, "parent_id": self.nodes[parent].node_id if parent else None, "tokens": 0,
            "cost_usd": 0.0, "elapsed_s": self.seq, "selected": "", "memory": "siblings", **outcome,
        }  # fmt: skip
        self.store.append(self.run_id, self.seq, self.number + 1, StepRecord(payload, 0, 0.0, **kept))
        self.seq, self.number = self.seq + 1, self.number + 1

    def verify(self, number: int, evaluation: dict[str, Any]) -> None:
        final = verified(self.nodes[number], evaluation)
        self.store.amend(self.run_id, self.seq, "verification", {"node_id": final.node_id}, final)
        self.nodes[number], self.seq = final, self.seq + 1

    def finish(self, number: int) -> None:
        result = SearchResult(self.run_id, None, self.seq, 1, "steps", 0, 0.0, 1.0)
        self.store.finish(self.run_id, self.seq, "steps", result, self.nodes[number])
