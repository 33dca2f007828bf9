"""Correcting the scope of what is stored already: nothing is read or embedded again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sqlmodel import col, select

from kb import scope as scopes
from kb.documents import DocumentWriter
from kb.errors import NotFound
from kb.labels import confirm_new
from kb.locks import home_lock
from kb.tables import Document, ScopeCorrection, Source
from kb.upkeep.sources import below, find_source, location_of, spelt

if TYPE_CHECKING:
    from sqlmodel import Session

    from kb.base import KnowledgeBase

_BATCH = 200


def correct_scope(
    kb: KnowledgeBase,
    text: str,
    label: str,
    *,
    inferred_as: str | None = None,
    waiting: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Put a document, everything below a folder, an archive or a source under the scope `label`.

    It holds against what the documents say of themselves, and for later ingestions, until it is corrected
    again. A correction of a folder replaces those made below it. With `inferred_as`, it is only for the
    documents there whose scope was inferred to be that. `notes` of the result says that the label is new, and
    which known one is close to it. Raises NotFound or StoreLocked.
    """
    scope = scopes.normalise(label)
    new = confirm_new(scope, kb.scopes())
    with home_lock(kb.home, timeout_s=kb.settings.lock_timeout_s, waiting=waiting):
        location, documents = _documents(kb, text)
        places = [location]
        if inferred_as is not None:
            documents = [d for d in documents if d.inferred and d.scope == inferred_as]
            places = [d.location for d in documents]
        wrong = [d.id for d in documents if d.scope != scope and d.id is not None]
        with kb.session() as session:
            for earlier in session.exec(select(ScopeCorrection)).all():
                if any(below(earlier.location, place) for place in places):
                    session.delete(earlier)
            session.flush()
            session.add_all(ScopeCorrection(location=place, scope=scope) for place in places)
            session.commit()
        writer = DocumentWriter(kb)
        for i in range(0, len(wrong), _BATCH):
            writer.rescope(wrong[i : i + _BATCH], scope)
    found = {"location": location, "scope": scope, "documents": len(documents), "changed": len(wrong)}
    return found | ({"notes": [new]} if new else {})


def _documents(kb: KnowledgeBase, text: str) -> tuple[str, list[Document]]:
    """Where `text` points to, and the documents at or below that."""
    with kb.session() as session:
        location, text = location_of(text), spelt(text)
        found = _at_or_below(session, location)
        if not found:  # perhaps a path as it is cited, alone or after its source, or the name of a source
            cited = session.exec(select(Document).where(col(Document.path) == text)).all()
            name, _, path = text.rstrip("/").partition("/")
            named = session.exec(select(Source).where(col(Source.name) == name)).all() if path else []
            places = [d.location for d in cited] or [f"{source.root}/{path}" for source in named]
            by_place = {p: below_it for p in places if (below_it := _at_or_below(session, p))}
            if len(by_place) > 1:
                raise NotFound(f"{text} may be one of several", f"name one: {', '.join([*by_place][:8])}")
            if by_place:
                return by_place.popitem()
            source = find_source(session, text)
            location = source.root
            found = list(session.exec(select(Document).where(Document.source_id == source.id)).all())
    if not found:
        raise NotFound(f"{text} has no documents", "ingest it first")
    return location, found


def _at_or_below(session: Session, location: str) -> list[Document]:
    # By the index: everything below a prefix, by "/" or "!", sorts before that prefix and "0".
    near = session.exec(
        select(Document).where(Document.location >= location, Document.location < location.rstrip("/") + "0")
    ).all()
    return [d for d in near if below(d.location, location)]


def corrections(session: Session) -> dict[str, str]:
    """All corrections: location -> scope."""
    return {c.location: c.scope for c in session.exec(select(ScopeCorrection))}


def corrected(known: Mapping[str, str], location: str) -> str | None:
    """What the nearest correction at or above `location` says."""
    covering = [place for place in known if below(location, place)]
    return known[max(covering, key=len)] if covering else None
