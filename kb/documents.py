"""Writing documents: embed first, then one short transaction, then the vector index follows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, insert, or_, select, update
from sqlmodel import col

from kb.change import Change, NewChunk, NewDocument, NewSection, Place, parts, stack, text_hash
from kb.errors import IndexOutOfStep, LocalOnly
from kb.tables import (
    LOCAL_ONLY,
    UNFINISHED,
    Chunk,
    Document,
    DocumentState,
    Embedding,
    Passage,
    Source,
    VectorIndexState,
    now,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlmodel import Session

    from kb.base import KnowledgeBase
    from kb.embedding import Embedder, Vectors

__all__ = [
    "DocumentWriter",
    "NewChunk",
    "NewDocument",
    "NewSection",
    "embed_texts",
    "expected_vectors",
    "read_vectors",
]

_REMOVED_AT_ONCE = 500  # documents
_EMBEDDED_AT_ONCE = 512  # texts: so many are lost at most when a run is killed


class DocumentWriter:
    """The only writer of documents and all that is derived from them; used under the ingest lock."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self._kb = kb

    def write(self, documents: Sequence[NewDocument]) -> None:
        """Store `documents`, replacing earlier versions. Nothing changes when embedding fails."""
        if not documents:
            return
        embedder = self._kb.embedder
        vectors = self._embed(embedder, documents)
        blobs = self._kb.blobs.put_all(d.text for d in documents)
        with self._kb.session() as session:
            rows = session.connection().execute(
                select(col(Source.id), col(Source.key)).where(
                    col(Source.id).in_({d.source_id for d in documents})
                )
            )
            keys = {source_id or 0: key for source_id, key in rows}
        with self._change(embedder) as change:
            change.replace(documents, keys, blobs, vectors)

    def remove(self, document_ids: Sequence[int]) -> None:
        """Forget documents with everything derived from them, some at a time: other processes get their turn
        in between.
        """
        for i in range(0, len(document_ids), _REMOVED_AT_ONCE):
            with self._change() as change:
                change.forget(document_ids[i : i + _REMOVED_AT_ONCE])

    def announce(self, documents: Sequence[Place]) -> None:
        """Record documents that were found and are yet to be read."""
        if not documents:
            return
        with self._kb.session() as session:
            Change(session).announce(documents)
            session.commit()

    def parsed(self, documents: Sequence[NewDocument], error: str = "") -> None:
        """Record that documents are read and about to be embedded, or why they could not be.

        What retrieval sees of a document that was embedded before stays as it is.
        """
        if not documents:
            return
        with self._kb.session() as session:
            session.connection().execute(
                update(Document)
                .where(
                    col(Document.source_id) == bindparam("source"),
                    col(Document.path) == bindparam("name"),
                    or_(*(col(Document.state) == state for state in UNFINISHED)),
                )
                .values(state=DocumentState.PARSED, error=error, updated=now()),
                [{"source": d.source_id, "name": d.path} for d in documents],
            )
            session.commit()

    def rescope(self, document_ids: Sequence[int], scope: str) -> None:
        """Put documents under another scope. Their vectors move to the partitions of that."""
        if not document_ids:
            return
        embedder = self._kb.embedder
        with self._kb.session() as session:
            rows = session.connection().execute(
                select(col(Passage.text_hash), col(Passage.text))
                .join(Chunk, col(Chunk.pk) == col(Passage.chunk_pk))
                .where(col(Chunk.document_id).in_(document_ids))
            )
            texts = {h: t for h, t in rows}  # noqa: C416 - rows are not pairs to the type checker
            vectors = known_vectors(session, embedder.model_id, list(texts))
            missing = {h: t for h, t in texts.items() if h not in vectors}
            sources = sources_of(session, list(missing))
        vectors |= embed_texts(self._kb, embedder, missing, sources)
        with self._change(embedder) as change:
            change.rescope(document_ids, scope, vectors)

    def fail(self, failures: Sequence[tuple[int, str, str, str]]) -> None:
        """Record documents, (source id, path, location, error), that could not be read or parsed; what they
        held before is forgotten.
        """
        if not failures:
            return
        with self._change() as change:
            change.fail(failures)

    @contextmanager
    def _change(self, embedder: Embedder | None = None) -> Iterator[Change]:
        """One transaction. The vector index follows under the same lock: no reader sees only one of them.

        Raises ModelChanged where `embedder`, which made the vectors of the change, does not serve any more.
        """
        with self._kb.vectors.exclusive():
            before = self._kb.expected_vectors()
            indexed = self._kb.indexed_vectors() == before
            with self._kb.session() as session:
                if embedder is not None:
                    self._kb.serving.claim(session, embedder)
                change = Change(session)
                yield change
                change.bump()
                session.commit()
            if not self._follow(change, before, indexed=indexed):
                why = "does not hold what the database says" if indexed else "is needed by now"
                self._kb.rebuild_vectors(why, held=True)  # or who opens the store meanwhile would do it

    def _follow(self, change: Change, before: dict[str, tuple[int, int]], *, indexed: bool) -> bool:
        """Have the vector index follow, where it is to hold anything.

        False when it was not in the state `before`, that the change started from, or not `indexed` then.
        """
        removed = {p: sorted(ids) for p, ids in change.removed.items() if ids}
        added = {p: stack(rows) for p, rows in change.added.items() if rows}
        after = self._kb.indexed_vectors()
        if not after or (not removed and not added):
            return True
        if not indexed:
            return False
        try:
            self._kb.vectors.apply(self._kb.serving.model_id, before, after, removed, added)
        except IndexOutOfStep:
            return False
        return True

    def _embed(self, embedder: Embedder, documents: Sequence[NewDocument]) -> dict[str, bytes]:
        """The vector of every passage by text hash, from the cache or computed and cached."""
        texts = {text_hash(p): p for d in documents for c in d.chunks for p in c.passages}
        with self._kb.session() as session:
            known = known_vectors(session, embedder.model_id, list(texts))
        missing = {h: t for h, t in texts.items() if h not in known}
        return known | embed_texts(self._kb, embedder, missing, {d.source_id for d in documents})


def embed_texts(
    kb: KnowledgeBase, embedder: Embedder, texts: dict[str, str], sources: Collection[int]
) -> dict[str, bytes]:
    """Embed `texts` (hash -> text) and keep the vectors: what is computed once is not computed again.

    All stored text is embedded here. Raises LocalOnly where one of `sources`, which the texts are from, must
    stay on this machine and the model does not; EmbeddingFailed.
    """
    if not texts:
        return {}
    with kb.session() as session:
        keep_local(session, embedder, sources)
    hashes = sorted(texts, key=lambda h: (len(texts[h]), h))  # similar lengths together waste no padding
    found: dict[str, bytes] = {}
    for i in range(0, len(hashes), _EMBEDDED_AT_ONCE):
        part = hashes[i : i + _EMBEDDED_AT_ONCE]
        vectors = embedder.embed([texts[h] for h in part])
        fresh = {h: vector.astype("<f4").tobytes() for h, vector in zip(part, vectors, strict=True)}
        with kb.session() as session:
            session.connection().execute(
                insert(Embedding).prefix_with("OR IGNORE"),
                [{"text_hash": h, "model": embedder.model_id, "vector": v} for h, v in fresh.items()],
            )
            session.commit()
        found |= fresh
    return found


def keep_local(session: Session, embedder: Embedder, sources: Collection[int | None]) -> None:
    """Raises LocalOnly where texts of a local-only source among `sources` would leave the private network."""
    if not embedder.sends_to:
        return
    named = session.connection().execute(
        select(col(Source.id), col(Source.root)).where(col(Source.visibility) == LOCAL_ONLY)
    )
    kept = sorted(root for source_id, root in named if source_id in sources)
    if kept:
        raise LocalOnly(
            f"{kept[0]} is local-only and {embedder.sends_to} is neither on this machine nor in its private "
            "network: its texts are not sent there",
            "set KERNELEVOLVE_EMBEDDING_MODEL to a model on this machine, or use an endpoint in your network",
        )


def sources_of(session: Session, hashes: Sequence[str]) -> set[int]:
    """The ids of the sources whose passages have these text hashes."""
    found: set[int] = set()
    for part in parts(hashes):
        rows = session.connection().execute(
            select(col(Document.source_id))
            .join(Chunk, col(Chunk.document_id) == col(Document.id))
            .join(Passage, col(Passage.chunk_pk) == col(Chunk.pk))
            .where(col(Passage.text_hash).in_(part))
            .distinct()
        )
        found.update(rows.scalars())
    return found


def known_vectors(session: Session, model: str, hashes: Sequence[str]) -> dict[str, bytes]:
    """The stored vectors of `model` by text hash."""
    found: dict[str, bytes] = {}
    for part in parts(hashes):
        rows = session.connection().execute(
            select(col(Embedding.text_hash), col(Embedding.vector)).where(
                col(Embedding.model) == model, col(Embedding.text_hash).in_(part)
            )
        )
        found.update((h, v) for h, v in rows)
    return found


def expected_vectors(connection: Connection) -> dict[str, tuple[int, int]]:
    """What the vector index must hold: partition -> (generation, count)."""
    rows = connection.execute(
        select(col(VectorIndexState.partition), col(VectorIndexState.generation), col(VectorIndexState.count))
    )
    return {p: (g, n) for p, g, n in rows}


def read_vectors(
    kb: KnowledgeBase, embedder: Embedder, partition: str, batch: int = 2000
) -> Iterator[tuple[list[str], Vectors]]:
    """A partition's passages with their vectors from SQL; what the model has not seen is embedded."""
    after = ""
    while True:
        with kb.session() as session:
            rows: Iterable[Any] = (
                session.connection()
                .execute(
                    select(col(Passage.id), col(Passage.text_hash), col(Passage.text))
                    .where(col(Passage.partition) == partition, col(Passage.id) > after)
                    .order_by(col(Passage.id))
                    .limit(batch)
                )
                .all()
            )
            found = {i: (h, t) for i, h, t in rows}
            if not found:
                return
            vectors = known_vectors(session, embedder.model_id, [h for h, _ in found.values()])
            missing = {h: t for h, t in found.values() if h not in vectors}
            sources = sources_of(session, list(missing))
        vectors |= embed_texts(kb, embedder, missing, sources)
        yield stack({i: vectors[h] for i, (h, _) in found.items()})
        after = max(found)
