"""Correcting the scope of what is stored already: nothing is read or embedded again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sqlmodel import col, select

from kb import scope as scopes
from kb.documents import DocumentWriter
from kb.errors import NotFound
from kb.locks import home_lock
from kb.tables import Document, ScopeCorrection
from kb.upkeep.sources import below, find_source, location_of

if TYPE_CHECKING:
    from sqlmodel import Session

    from kb.base import KnowledgeBase

_BATCH = 200


def correct_scope(
    kb: KnowledgeBase, text: str, label: str, *, waiting: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Put a document, everything below a folder, an archive or a source under the scope `label`.

    It holds against what the documents say of themselves, and for later ingestions, until it is corrected
    again. A correction of a folder replaces those made below it. Raises NotFound or StoreLocked.
    """
    scope = scopes.normalise(label)
    with home_lock(kb.home, timeout_s=kb.settings.lock_timeout_s, waiting=waiting):
        location, documents = _documents(kb, text)
        wrong = [i for i, current in documents.items() if current != scope]
        with kb.session() as session:
            for earlier in session.exec(select(ScopeCorrection)):
                if below(earlier.location, location):
                    session.delete(earlier)
            session.flush()
            session.add(ScopeCorrection(location=location, scope=scope))
            session.commit()
        writer = DocumentWriter(kb)
        for i in range(0, len(wrong), _BATCH):
            writer.rescope(wrong[i : i + _BATCH], scope)
    return {"location": location, "scope": scope, "documents": len(documents), "changed": len(wrong)}


def _documents(kb: KnowledgeBase, text: str) -> tuple[str, dict[int, str]]:
    """Where `text` points to, and the documents at or below that: id -> scope."""
    location = location_of(text)
    with kb.session() as session:
        rows = session.exec(select(Document.id, Document.location, Document.scope, Document.source_id)).all()
        found = {i: scope for i, where, scope, _ in rows if i is not None and below(where, location)}
        if not found:  # perhaps a path inside an archive, as it is cited, or the name of a source
            cited = session.exec(select(Document).where(col(Document.path) == text)).all()
            if len(cited) == 1 and cited[0].id is not None:
                return cited[0].location, {cited[0].id: cited[0].scope}
            source = find_source(session, text)
            location = source.root
            found = {i: scope for i, _, scope, owner in rows if i is not None and owner == source.id}
    if not found:
        raise NotFound(f"{text} has no documents", "ingest it first")
    return location, found


def corrections(session: Session) -> dict[str, str]:
    """All corrections: location -> scope."""
    return {c.location: c.scope for c in session.exec(select(ScopeCorrection))}


def corrected(known: Mapping[str, str], location: str) -> str | None:
    """What the nearest correction at or above `location` says."""
    covering = [place for place in known if below(location, place)]
    return known[max(covering, key=len)] if covering else None
