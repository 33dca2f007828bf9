"""Writing documents: embed first, then one short transaction, then the vector index follows."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, insert, select, update
from sqlmodel import col

from kb.errors import IndexOutOfStep
from kb.skills import NewSkill, previous_state, write_skill
from kb.tables import (
    Chunk,
    Document,
    DocumentState,
    Embedding,
    Passage,
    Section,
    Source,
    Trace,
    VectorIndexState,
    now,
    partition_of,
)

if TYPE_CHECKING:
    from sqlmodel import Session

    from kb.base import KnowledgeBase
    from kb.embedding import Embedder, Vectors

_IN_CLAUSE = 500  # SQLite limits the number of bound variables


@dataclass(frozen=True)
class NewChunk:
    """A parent with its child passages. `section` indexes NewDocument.sections."""

    section: int
    breadcrumb: str
    text: str
    start_line: int
    end_line: int
    page: int | None
    passages: tuple[str, ...]


@dataclass(frozen=True)
class NewSection:
    """A heading with its lines, 1-based and inclusive."""

    heading_path: str
    start_line: int
    end_line: int
    page: int | None = None
    rendered: bool = False


@dataclass
class NewDocument:
    """A parsed document, ready to be stored in place of what its path held before."""

    source_id: int
    path: str
    location: str
    sha256: str
    recipe: str
    text: str
    loader: str
    kind: str
    scope: str
    title: str
    size: int
    meta: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    sections: list[NewSection] = field(default_factory=list)
    chunks: list[NewChunk] = field(default_factory=list)
    state: DocumentState = DocumentState.EMBEDDED
    skill: NewSkill | None = None
    traces: list[dict[str, Any]] = field(default_factory=list)  # Diagnose records, with "format"


class DocumentWriter:
    """The only writer of documents and all that is derived from them; used under the ingest lock."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self._kb = kb

    def write(self, documents: Sequence[NewDocument]) -> None:
        """Store `documents`, replacing earlier versions. Nothing changes when embedding fails."""
        if not documents:
            return
        vectors = self._embed(documents)
        blobs = {id(d): self._kb.blobs.put(d.text) for d in documents}
        sources = {d.source_id for d in documents}
        with self._kb.session() as session:
            keys = dict(
                session.connection()
                .execute(select(col(Source.id), col(Source.key)).where(col(Source.id).in_(sources)))
                .all()
            )
        with self._change() as change:
            for document in documents:
                change.replace(document, keys[document.source_id], blobs[id(document)], vectors)

    def remove(self, document_ids: Sequence[int]) -> None:
        """Forget documents with everything derived from them."""
        if not document_ids:
            return
        with self._change() as change:
            for document_id in document_ids:
                change.clear(document_id)
                change.session.connection().execute(delete(Document).where(col(Document.id) == document_id))

    def fail(self, source_id: int, path: str, location: str, error: str) -> None:
        """Record that a document could not be read or parsed; what it held before is forgotten."""
        with self._change() as change:
            document_id = change.document_id(source_id, path, location)
            change.clear(document_id)
            change.session.connection().execute(
                update(Document)
                .where(col(Document.id) == document_id)
                .values(state=DocumentState.FAILED, error=error, sha256="", updated=now())
            )

    @contextmanager
    def _change(self) -> Iterator[_Change]:
        """One transaction. The vector index follows under the same lock: no reader sees only one of them."""
        with self._kb.vectors.exclusive():
            before = self._kb.expected_vectors()
            with self._kb.session() as session:
                change = _Change(session)
                yield change
                change.bump()
                session.commit()
            in_step = self._follow(change, before)
        if not in_step:
            self._kb.rebuild_vectors("does not hold what the database says")

    def _follow(self, change: _Change, before: dict[str, tuple[int, int]]) -> bool:
        """Have the vector index follow. False when it was not in the state that the change started from."""
        removed = {p: sorted(ids) for p, ids in change.removed.items() if ids}
        added = {p: _stack(rows) for p, rows in change.added.items() if rows}
        if not removed and not added:
            return True
        after = self._kb.expected_vectors()
        try:
            self._kb.vectors.apply(self._kb.embedder.model_id, before, after, removed, added)
        except IndexOutOfStep:
            return False
        return True

    def _embed(self, documents: Sequence[NewDocument]) -> dict[str, bytes]:
        """The vector of every passage by text hash, from the cache or computed and cached."""
        embedder = self._kb.embedder
        texts = {text_hash(p): p for d in documents for c in d.chunks for p in c.passages}
        with self._kb.session() as session:
            known = _cached(session, embedder.model_id, list(texts))
        missing = {h: t for h, t in texts.items() if h not in known}
        return known | embed_texts(self._kb, embedder, missing)


def text_hash(text: str) -> str:
    """sha256 of a text, lone surrogates included; the key of its cached vector."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def chunk_id(source_key: str, path: str, ordinal: int, text: str) -> str:
    """Never of the text alone: two documents with the same content stay two."""
    return text_hash("\x00".join((source_key, path, str(ordinal), text)))


def embed_texts(kb: KnowledgeBase, embedder: Embedder, texts: dict[str, str]) -> dict[str, bytes]:
    """Embed `texts` (hash -> text) and keep the vectors: an interrupted run loses none of them."""
    if not texts:
        return {}
    hashes = sorted(texts, key=lambda h: (len(texts[h]), h))  # batches of similar length waste no padding
    vectors = embedder.embed([texts[h] for h in hashes])
    fresh = {h: vectors[i].astype("<f4").tobytes() for i, h in enumerate(hashes)}
    with kb.session() as session:
        session.connection().execute(
            insert(Embedding).prefix_with("OR IGNORE"),
            [{"text_hash": h, "model": embedder.model_id, "vector": v} for h, v in fresh.items()],
        )
        session.commit()
    return fresh


def _cached(session: Session, model: str, hashes: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for part in _parts(hashes):
        rows = session.connection().execute(
            select(col(Embedding.text_hash), col(Embedding.vector)).where(
                col(Embedding.model) == model, col(Embedding.text_hash).in_(part)
            )
        )
        found.update((h, v) for h, v in rows)
    return found


def _parts(items: Sequence[str]) -> Iterator[Sequence[str]]:
    for i in range(0, len(items), _IN_CLAUSE):
        yield items[i : i + _IN_CLAUSE]


class _Change:
    """The statements of one transaction, and what they mean for the vector index."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.removed: dict[str, set[str]] = defaultdict(set)  # partition -> passage ids
        self.added: dict[str, dict[str, bytes]] = defaultdict(dict)  # partition -> passage id -> vector

    def document_id(self, source_id: int, path: str, location: str) -> int:
        connection = self.session.connection()
        found = connection.execute(
            select(col(Document.id)).where(col(Document.source_id) == source_id, col(Document.path) == path)
        ).scalar()
        if found is not None:
            return int(found)
        document = Document(source_id=source_id, path=path, location=location)
        self.session.add(document)
        self.session.flush()
        assert document.id is not None
        return document.id

    def clear(self, document_id: int) -> None:
        """Remove what a document was cut into, and its skill or traces, but not the document's row."""
        connection = self.session.connection()
        chunks = select(col(Chunk.pk)).where(col(Chunk.document_id) == document_id)
        passages = select(col(Passage.id), col(Passage.partition)).where(col(Passage.chunk_pk).in_(chunks))
        for passage_id, partition in connection.execute(passages):
            self.removed[partition].add(passage_id)
            self.added[partition].pop(passage_id, None)
        connection.execute(delete(Passage).where(col(Passage.chunk_pk).in_(chunks)))
        for table in (Chunk, Section, Trace):
            connection.execute(delete(table).where(col(table.document_id) == document_id))
        write_skill(self.session, document_id, None)

    def replace(
        self, document: NewDocument, source_key: str, text_sha: str, vectors: dict[str, bytes]
    ) -> None:
        document_id = self.document_id(document.source_id, document.path, document.location)
        connection = self.session.connection()
        previous = previous_state(self.session, document_id) if document.skill else None
        self.clear(document_id)
        connection.execute(
            update(Document)
            .where(col(Document.id) == document_id)
            .values(
                location=document.location, state=document.state, error="", sha256=document.sha256,
                recipe=document.recipe, text_sha=text_sha, loader=document.loader, kind=document.kind,
                scope=document.scope, title=document.title, meta=document.meta, notes=document.notes,
                size=document.size, updated=now(),
            )
        )  # fmt: skip
        self._write_chunks(document, document_id, source_key, vectors)
        if document.traces:
            connection.execute(
                insert(Trace), [_trace_row(document_id, i, t) for i, t in enumerate(document.traces)]
            )
        if document.skill is not None:
            write_skill(self.session, document_id, document.skill, previous)

    def _write_chunks(
        self, document: NewDocument, document_id: int, source_key: str, vectors: dict[str, bytes]
    ) -> None:
        if not document.chunks:
            return
        connection = self.session.connection()
        section_ids = _insert_returning(
            connection,
            Section,
            col(Section.id),
            [
                {"document_id": document_id, "ordinal": i, **vars(section)}
                for i, section in enumerate(document.sections)
            ],
        )
        ids = [chunk_id(source_key, document.path, i, c.text) for i, c in enumerate(document.chunks)]
        chunk_pks = _insert_returning(
            connection,
            Chunk,
            col(Chunk.pk),
            [
                {
                    "id": ids[i], "document_id": document_id, "section_id": section_ids[c.section],
                    "ordinal": i, "scope": document.scope, "kind": document.kind,
                    "breadcrumb": c.breadcrumb, "text": c.text, "start_line": c.start_line,
                    "end_line": c.end_line, "page": c.page,
                }
                for i, c in enumerate(document.chunks)
            ],
        )  # fmt: skip
        partition = partition_of(document.kind, document.scope)
        rows = []
        for i, chunk in enumerate(document.chunks):
            for j, passage in enumerate(chunk.passages):
                digest = text_hash(passage)
                passage_id = text_hash(f"{ids[i]}\x00{j}\x00{passage}")
                rows.append(
                    {
                        "id": passage_id, "chunk_pk": chunk_pks[i], "partition": partition, "ordinal": j,
                        "text": passage, "text_hash": digest,
                    }
                )  # fmt: skip
                if passage_id in self.removed[partition]:
                    self.removed[partition].discard(passage_id)  # unchanged: the index has it already
                else:
                    self.added[partition][passage_id] = vectors[digest]
        if rows:
            connection.execute(insert(Passage), rows)

    def bump(self) -> None:
        connection = self.session.connection()
        touched = {p for side in (self.removed, self.added) for p, ids in side.items() if ids}
        for partition in sorted(touched):
            count = connection.execute(
                select(func.count()).select_from(Passage).where(col(Passage.partition) == partition)
            ).scalar_one()
            changed = connection.execute(
                update(VectorIndexState)
                .where(col(VectorIndexState.partition) == partition)
                .values(generation=col(VectorIndexState.generation) + 1, count=count)
            )
            if not changed.rowcount:
                row = {"partition": partition, "generation": 1, "count": count}
                connection.execute(insert(VectorIndexState), [row])


def _insert_returning(connection: Any, table: Any, key: Any, rows: list[dict[str, Any]]) -> list[int]:
    statement = insert(table).returning(key, sort_by_parameter_order=True)
    return [int(k) for k in connection.execute(statement, rows).scalars()]


def _stack(rows: dict[str, bytes]) -> tuple[list[str], Vectors]:
    import numpy as np

    ids = sorted(rows)
    return ids, np.stack([np.frombuffer(rows[i], dtype="<f4") for i in ids])


def _trace_row(document_id: int, ordinal: int, record: dict[str, Any]) -> dict[str, Any]:
    return {
        "document_id": document_id, "ordinal": ordinal, "format": record["format"], "kernel": record["name"],
        "duration_us": record["duration_us"], "bottleneck": record["bottleneck"],
        "record": {k: v for k, v in record.items() if k != "format"},
    }  # fmt: skip


def expected_vectors(session: Session) -> dict[str, tuple[int, int]]:
    """What the vector index must hold: partition -> (generation, count)."""
    rows = session.connection().execute(
        select(col(VectorIndexState.partition), col(VectorIndexState.generation), col(VectorIndexState.count))
    )
    return {p: (g, n) for p, g, n in rows}


def read_vectors(kb: KnowledgeBase, partition: str, batch: int = 2000) -> Iterator[tuple[list[str], Vectors]]:
    """A partition's passages with their vectors from SQL; what the model has not seen is embedded."""
    embedder = kb.embedder
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
            vectors = _cached(session, embedder.model_id, [h for h, _ in found.values()])
        vectors |= embed_texts(kb, embedder, {h: t for h, t in found.values() if h not in vectors})
        yield _stack({i: vectors[h] for i, (h, _) in found.items()})
        after = max(found)
