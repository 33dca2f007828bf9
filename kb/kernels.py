"""Kernels that were ingested with their measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlmodel import col, select

from kb import scope as scopes
from kb.tables import LOCAL_ONLY, Document, DocumentState, Source

if TYPE_CHECKING:
    from kb.base import KnowledgeBase


@dataclass(frozen=True)
class KernelRecord:
    """A kernel's source with what was measured of it, the fastest first; see `ingest.measurements`.

    `path` is its name inside `source`, `location` where it lies; `local_only` as in Hit.
    """

    path: str
    source: str
    location: str
    target: str
    language: str
    best_speedup: float
    measurements: list[dict[str, Any]]
    local_only: bool


def skill_candidates(kb: KnowledgeBase, target: str | None = None) -> list[KernelRecord]:
    """The kernels that `target` may see and that beat their baseline, the fastest first: what a skill could
    be made from.
    """
    with kb.session() as session:
        rows = session.exec(
            select(Document, Source)
            .where(col(Document.source_id) == col(Source.id))
            .where(Document.kind == "kernel", Document.state == DocumentState.EMBEDDED)
        ).all()
        seen = set(scopes.visible({document.scope for document, _ in rows}, target))
        found = [
            KernelRecord(
                path=document.path,
                source=source.name,
                location=document.location,
                target=document.scope,
                language=str(document.meta.get("language", "")),
                best_speedup=speedup,
                measurements=list(document.meta.get("measurements", [])),
                local_only=source.visibility == LOCAL_ONLY,
            )
            for document, source in rows
            if document.scope in seen and (speedup := _number(document.meta.get("best_speedup"))) > 1
        ]
    return sorted(found, key=lambda record: (-record.best_speedup, record.source, record.path))


def _number(value: Any) -> float:
    """Front matter may say anything."""
    return float(value) if isinstance(value, int | float) else 0.0
