"""What the knowledge base holds, in numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select
from sqlmodel import col

from kb.tables import Chunk, Document, Embedding, Node, Passage, Run, Skill, Source, Trace

if TYPE_CHECKING:
    from kb.base import KnowledgeBase


def stats(kb: KnowledgeBase) -> dict[str, Any]:
    """Counts per table, documents by state, kind and scope, and bytes below the home folder."""
    from kb.upkeep.sources import list_sources

    with kb.session() as session:
        connection = session.connection()

        def count(table: Any) -> int:
            return int(connection.execute(select(func.count()).select_from(table)).scalar_one())

        def by(column: Any) -> dict[str, int]:
            rows = connection.execute(select(column, func.count()).group_by(column).order_by(column))
            return {key: n for key, n in rows}  # noqa: C416 - rows are not pairs to the type checker

        tables = (Source, Document, Chunk, Passage, Embedding, Skill, Trace, Run, Node)
        return {
            "home": str(kb.home),
            "counts": {str(table.__tablename__): count(table) for table in tables},
            "documents_by_state": by(col(Document.state)),
            "documents_by_kind": by(col(Document.kind)),
            "documents_by_scope": by(col(Document.scope)),
            "embedding": _embedding(kb),
            "sources": list_sources(session),
            "bytes": home_bytes(kb.home),
            "quota": kb.settings.quota,
        }


def _embedding(kb: KnowledgeBase) -> dict[str, Any]:
    """What answers, and how far the model is that the settings name instead."""
    from kb.reembed import running
    from kb.serving import label

    embedder = kb.serving.answering
    runtime = f"none: {kb.serving.lost}" if embedder is None else embedder.runtime
    found: dict[str, Any] = {"model": kb.serving.model_id, "runtime": runtime, "next": None}
    following = kb.serving.record.next()
    if following is not None:
        found["next"] = {
            "model": following.model,
            "name": label(following.name, following.base_url),
            "embedded": following.done,
            "passages": following.total,
            "running": running(kb.home),
            "error": following.error,
        }
    return found


def home_bytes(home: Path) -> int:
    """Bytes of all files below the home folder."""
    return sum(_size(path) for path in home.rglob("*"))


def _size(path: Path) -> int:
    """0 for folders and for what another process has removed meanwhile."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0
