"""What several tests of whole runs share."""

from __future__ import annotations

from typing import Any

from sqlmodel import select

from kb import KnowledgeBase
from kb.tables import Chunk, Document, Passage


def snapshot(kb: KnowledgeBase) -> list[tuple[Any, ...]]:
    """All that retrieval can return, without the keys that depend on the order of insertion."""
    with kb.session() as session:
        rows = session.exec(
            select(Chunk, Document).where(Chunk.document_id == Document.id).order_by(Chunk.id)
        ).all()
        passages = session.exec(select(Passage.id, Passage.partition).order_by(Passage.id)).all()
    found = [(d.path, d.title, c.id, c.text, c.start_line, c.end_line, c.scope, c.kind) for c, d in rows]
    for query in ("tiles fit the cache", "sum of x and y", "wavefront lanes"):
        found += [(query, h.rank, h.score, h.citation, h.text) for h in kb.query(query, k=50).hits]
    return [*found, *map(tuple, passages)]


def counts(report: Any) -> tuple[int, int, int, int]:
    return report.added, report.updated, report.unchanged, report.removed
