"""The documents that the prompts of a run used: under which licence they are, and whether they may leave."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlmodel import Session, col

from kb.tables import LOCAL_ONLY, Chunk, Document, Node, PromptUse, Source

if TYPE_CHECKING:
    from kb import KnowledgeBase

UNKNOWN = "unknown"  # the licence of a document that names none, or that is no longer stored
_CITED = re.compile(r"(?P<path>.+):\d+-\d+(?: p\. \d+)?(?: § .*)?", re.DOTALL)


@dataclass(frozen=True)
class Used:
    """A document that a prompt showed. `licence` is an SPDX expression as its author wrote it."""

    path: str
    licence: str
    local_only: bool


def licence_of(meta: Mapping[str, Any]) -> str:
    """What a document's front matter, or the scope file above it, says; both spellings count."""
    said = meta.get("license") or meta.get("licence")
    return said.strip() if isinstance(said, str) and said.strip() else UNKNOWN


def used_by(kb: KnowledgeBase, run_id: str) -> dict[str, frozenset[Used]]:
    """The documents behind each node's prompt, by node id.

    A passage that is gone is looked for by the path in its citation: its document may have been cut anew. Of
    several documents at such a path the strictest counts.
    """
    found: dict[str, set[Used]] = {}
    gone: list[tuple[str, str]] = []
    with kb.session() as session:
        rows: Iterable[Any] = session.connection().execute(
            select(
                col(PromptUse.node_id),
                col(PromptUse.citation),
                col(Document.path),
                col(Document.meta),
                col(Source.visibility),
            )
            .join(Node, col(Node.id) == col(PromptUse.node_id))
            .outerjoin(Chunk, col(Chunk.id) == col(PromptUse.chunk_id))
            .outerjoin(Document, col(Document.id) == col(Chunk.document_id))
            .outerjoin(Source, col(Source.id) == col(Document.source_id))
            .where(col(Node.run_id) == run_id)
        )
        for node_id, citation, path, meta, visibility in rows:
            if visibility is None:
                gone.append((node_id, citation))
            else:
                used = Used(path, licence_of(meta), visibility == LOCAL_ONLY)
                found.setdefault(node_id, set()).add(used)
        known: dict[str, set[Used]] = {}
        for node_id, citation in gone:
            if citation not in known:
                known[citation] = _at(session, citation)
            found.setdefault(node_id, set()).update(known[citation])
    return {node_id: frozenset(used) for node_id, used in found.items()}


def _at(session: Session, citation: str) -> set[Used]:
    match = _CITED.fullmatch(citation)
    path = match["path"] if match else citation
    rows: Iterable[Any] = session.connection().execute(
        select(col(Document.meta), col(Source.visibility))
        .join(Source, col(Source.id) == col(Document.source_id))
        .where(col(Document.path) == path)
    )
    found = {Used(path, licence_of(meta), visibility == LOCAL_ONLY) for meta, visibility in rows}
    return found or {Used(path, UNKNOWN, False)}
