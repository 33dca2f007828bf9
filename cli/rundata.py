"""A run as plain data for tables and reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.graph import SearchNode
    from agent.models.usage import ModelUsage
    from agent.rows import RunInfo, StoredRun
    from agent.store import RunStore
    from kb import KnowledgeBase

WITHHELD = "This passage is local-only and is not part of a report."
GONE = "This passage is no longer in the knowledge base."
# Database engines limit the number of values in one IN (…).
BATCH = 500

NODE_KEYS = (
    *("node_id", "parent_id", "step", "generator", "status", "speedup", "speedup_ci", "hypothesis"),
    *("compiler_made", "genome", "evaluation", "diagnosis", "local_only"),
)

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class RunData:
    """`candidates` in step order, with their sources; `skipped` are the steps that led to no candidate,
    `models` what each generator was asked and cost.
    """

    info: RunInfo
    problem_source: str
    eager_ms: float | None
    candidates: Rows
    skipped: Rows
    models: list[ModelUsage]

    @property
    def best(self) -> dict[str, Any] | None:
        return next((c for c in self.candidates if c["node_id"] == self.info.best_node_id), None)


def load_run(kb: KnowledgeBase, run_id: str) -> RunData:
    """A run by its id, an unambiguous prefix of it, or `last`. Raises RunNotFound."""
    from agent.models.usage import usage
    from agent.store import RunStore

    store = RunStore(kb)
    run = store.load(run_id)
    return RunData(
        info=run.info,
        problem_source=run.problem_source,
        eager_ms=run.facts.get("eager_ms"),
        candidates=[_row(store, node) for node in run.graph.candidates()],
        skipped=skipped_steps(run),
        models=usage((e.payload for e in run.events if e.kind == "step"), run.graph),
    )


def skipped_steps(run: StoredRun) -> Rows:
    """The events of steps that led to no candidate."""
    return [e.payload for e in run.events if e.kind == "step" and not e.payload.get("node_id")]


def _row(store: RunStore, node: SearchNode) -> dict[str, Any]:
    row = {key: getattr(node, key) for key in NODE_KEYS}
    return {**row, "verdict": node.notes.get("verdict"), "source": store.source(node)}


def run_of(kb: KnowledgeBase, node_id: str) -> str:
    """The run that a node belongs to. Raises RunNotFound."""
    from agent.errors import RunNotFound
    from kb.tables import Node

    with kb.session() as session:
        node = session.get(Node, node_id)
    if node is None:
        raise RunNotFound(f"no candidate {node_id!r}", "list a run's: kernelevolve runs show RUN --json")
    return node.run_id


def passages(kb: KnowledgeBase, hypotheses: Mapping[str, str]) -> tuple[dict[str, Rows], set[str]]:
    """What was retrieved for each node (slot, citation, score, text), and whose words must stay here.

    A local-only passage, and one whose source is no longer known, comes without text and citation. A step
    that had a local-only passage may repeat it in what it wrote, and so may one whose hypothesis
    (`hypotheses` by node id) cites a passage which is gone: those nodes are named. Reports get passages from
    here only.
    """
    from sqlmodel import col, select

    from kb.tables import Chunk, Document, PromptUse, Source

    found: dict[str, Rows] = {}
    private: set[str] = set()
    node_ids = list(hypotheses)
    with kb.session() as session:
        for start in range(0, len(node_ids), BATCH):
            statement = (
                select(PromptUse, Chunk.text, Source.visibility)
                .outerjoin(Chunk, col(Chunk.id) == col(PromptUse.chunk_id))
                .outerjoin(Document, col(Document.id) == col(Chunk.document_id))
                .outerjoin(Source, col(Source.id) == col(Document.source_id))
                .where(col(PromptUse.node_id).in_(node_ids[start : start + BATCH]))
                .order_by(col(PromptUse.id))
            )
            rows: Iterable[Any] = session.exec(statement)  # typed as if outer joins never brought None
            for use, text, visibility in rows:
                passage = {"slot": use.slot, "citation": use.citation, "score": use.score, "text": text}
                if visibility != "shared":
                    note = GONE if visibility is None else WITHHELD
                    passage |= {"citation": "(withheld)", "text": None, "note": note}
                    if visibility is not None or use.citation in hypotheses[use.node_id]:
                        private.add(use.node_id)
                found.setdefault(use.node_id, []).append(passage)
    return found, private
