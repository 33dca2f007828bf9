"""The generator `replay:RUN`: the answers of a recorded run, step by step."""

from __future__ import annotations

from typing import Any

from agent.generator import Draft, Exhausted, GenerationFailed, GenerationRequest, OutOfAnswers
from agent.store import RunStore

# What a later look has added, which is none of the answer.
_NOT_ANSWER = ("first_evaluation",)


class ReplayGenerator:
    """Answers step N with what step N of the recorded run answered, its failures too; nothing is paid."""

    hosted = False

    def __init__(self, store: RunStore, run_id: str) -> None:
        """Raises RunNotFound."""
        self._store = store
        run = store.load(store.resolve(run_id))
        self.name = f"replay:{run.info.run_id}"
        self._steps = {e.payload["step"]: e.payload for e in run.events if e.kind == "step"}
        self._graph = run.graph
        self._by_digest = {node.digest: node for node in run.graph.candidates()}

    def generate(self, request: GenerationRequest) -> Draft:
        """Raises what the recorded step raised, and OutOfAnswers after its last one."""
        event = self._steps.get(request.step)
        if event is None:
            raise OutOfAnswers(f"{self.name} has no step {request.step}: it has {len(self._steps)}")
        raw = self._store.answer(event)
        if event["outcome"] == "ideas":
            return Draft(source="", hypothesis="", ideas=tuple(event["ideas"]), raw=raw)
        node_id = event.get("node_id")
        tried = event.get("tried") or [""]
        node = self._graph.node(node_id) if node_id else self._by_digest.get(tried[0])
        if node is None:
            kind = Exhausted if event["outcome"] == "exhausted" else GenerationFailed
            raise kind(str(event["error"]), raw=raw)
        notes: dict[str, Any] = {k: v for k, v in node.notes.items() if k not in _NOT_ANSWER}
        return Draft(
            source=self._store.source(node),
            hypothesis=str(event.get("hypothesis") or node.hypothesis),
            genome=node.genome,
            compiler_made=node.compiler_made,
            used=tuple(event.get("used") or ()),
            raw=raw,
            notes={**notes, "replayed": node.generator},
        )
