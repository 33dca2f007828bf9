"""Sources by the names that people use for them, and how one is removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select
from sqlmodel import col
from sqlmodel import select as select_rows

from kb.documents import DocumentWriter
from kb.errors import NotFound, Refused
from kb.locks import home_lock
from kb.tables import Chunk, Document, DocumentState, ScopeCorrection, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlmodel import Session

    from kb.base import KnowledgeBase

_BATCH = 200  # documents per transaction: queries of other processes get their turn in between


def list_sources(session: Session) -> list[dict[str, Any]]:
    """Every source with its numbers, by root."""
    connection = session.connection()
    documents = dict(
        connection.execute(
            select(col(Document.source_id), func.count()).group_by(col(Document.source_id))
        ).all()
    )
    failed = dict(
        connection.execute(
            select(col(Document.source_id), func.count())
            .where(col(Document.state) == DocumentState.FAILED)
            .group_by(col(Document.source_id))
        ).all()
    )
    chunks = dict(
        connection.execute(
            select(col(Document.source_id), func.count())
            .join(Chunk, col(Chunk.document_id) == col(Document.id))
            .group_by(col(Document.source_id))
        ).all()
    )
    return [
        {
            "name": s.name,
            "root": s.root,
            "scope": s.scope,
            "visibility": s.visibility,
            "version": s.version,
            "documents": documents.get(s.id or 0, 0),
            "failed": failed.get(s.id or 0, 0),
            "chunks": chunks.get(s.id or 0, 0),
        }
        for s in session.exec(select_rows(Source).order_by(col(Source.root), col(Source.key)))
    ]


def find_source(session: Session, text: str) -> Source:
    """The source with this path or, where only one has it, with this name.

    Raises NotFound, with a hint that lists what there is.
    """
    path, text = location_of(text), spelt(text)
    sources = session.exec(select_rows(Source).order_by(col(Source.root))).all()
    for source in sources:
        if source.key in (text, path):
            return source
    named = [s for s in sources if s.name == text]
    if len(named) == 1:
        return named[0]
    if named:
        raise NotFound(
            f"{len(named)} sources are called {text!r}",
            f"name the folder: {', '.join(s.root for s in named)}",
        )
    around = [s for s in sources if s.key == s.root and Path(path).is_relative_to(s.root)]
    if around:
        nearest = max(around, key=lambda s: len(s.root))
        raise NotFound(f"{text} is a part of a source, not a source", f"the source is {nearest.root}")
    known = ", ".join(s.root if s.key == s.root else s.key for s in sources[:8]) or "none"
    raise NotFound(f"no source {text!r}", f"sources: {known}{' …' if len(sources) > 8 else ''}")


def location_of(text: str) -> str:
    """A path as it is stored: absolute, links resolved; what is not UTF-8 in it is spelt out.

    Raises NotFound for an empty one.
    """
    if not text.strip():  # an unset variable of a shell would otherwise mean the current folder
        raise NotFound("an empty name", "name a path or a source; . is the current folder")
    path = Path(text).expanduser()
    try:
        resolved = str(path.resolve())
    except RuntimeError:  # links that lead in a circle
        resolved = str(path.absolute())
    return spelt(resolved)


def spelt(name: str) -> str:
    """A name of the file system as it is stored: what is not UTF-8 reaches Python as lone surrogates."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def below(location: str, prefix: str) -> bool:
    """Whether `location` is `prefix`, in that folder, or in that archive (`a.zip!inner/file.md`)."""
    return location == prefix or location.startswith((prefix.rstrip("/") + "/", prefix + "!"))


def remove_source(
    kb: KnowledgeBase,
    text: str,
    *,
    progress: Callable[[int, int], None] = lambda *_: None,
    waiting: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Forget a source with everything that was made from it. Its files are not touched.

    Cached vectors and blobs stay until `collect_garbage`. Raises NotFound, Refused or StoreLocked.
    """
    with home_lock(kb.home, timeout_s=kb.settings.lock_timeout_s, waiting=waiting):
        with kb.session() as session:
            source = find_source(session, text)
            if source.key != source.root:
                raise Refused(
                    f"{source.key!r} ships with the package and cannot be removed",
                    "the next command would read it in again",
                )
            ids = [
                i for i in session.exec(select_rows(Document.id).where(Document.source_id == source.id)) if i
            ]
            chunks = session.exec(
                select_rows(func.count())
                .select_from(Chunk)
                .join(Document, col(Document.id) == col(Chunk.document_id))
                .where(col(Document.source_id) == source.id)
            ).one()
        writer = DocumentWriter(kb)
        for i in range(0, len(ids), _BATCH):
            writer.remove(ids[i : i + _BATCH])
            progress(min(i + _BATCH, len(ids)), len(ids))
        with kb.session() as session:
            session.delete(session.get_one(Source, source.id))
            inner = [r for r in session.exec(select_rows(Source.root)) if below(r, source.root)]
            for correction in session.exec(select_rows(ScopeCorrection)):
                place = correction.location
                if below(place, source.root) and not any(below(place, r) for r in inner if r != source.root):
                    session.delete(correction)
            session.commit()
    return {"source": source.root, "documents": len(ids), "chunks": chunks}
