"""One change of the documents: its statements, and what they mean for the vector index."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, insert, select, update
from sqlmodel import col

from kb.skills import NewSkill, previous_state, write_skill
from kb.tables import (
    UNFINISHED,
    Chunk,
    Document,
    DocumentState,
    Passage,
    Section,
    Skill,
    Trace,
    VectorIndexState,
    now,
    partition_of,
)

if TYPE_CHECKING:
    from sqlmodel import Session

    from kb.embedding import Vectors


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
    inferred: str = ""  # why the scope was concluded from the content
    meta: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    sections: list[NewSection] = field(default_factory=list)
    chunks: list[NewChunk] = field(default_factory=list)
    state: DocumentState = DocumentState.EMBEDDED
    skill: NewSkill | None = None
    traces: list[dict[str, Any]] = field(default_factory=list)  # Diagnose records, with "format"


def text_hash(text: str) -> str:
    """sha256 of a text, lone surrogates included; the key of its cached vector."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def chunk_id(source_key: str, path: str, ordinal: int, text: str) -> str:
    """Never of the text alone: two documents with the same content stay two."""
    return text_hash("\x00".join((source_key, path, str(ordinal), text)))


class Change:
    """The statements of one transaction, and what they mean for the vector index."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.removed: dict[str, set[str]] = defaultdict(set)  # partition -> passage ids
        self.added: dict[str, dict[str, bytes]] = defaultdict(dict)  # partition -> passage id -> vector

    def emptied(self, source_id: int, path: str, location: str) -> int:
        """The id of a document of which only the row is left; made where there was none."""
        found = (
            self.session.connection()
            .execute(
                select(col(Document.id), col(Document.state)).where(
                    col(Document.source_id) == source_id, col(Document.path) == path
                )
            )
            .first()
        )
        if found is not None:
            document_id, state = int(found[0] or 0), found[1]
            if state not in UNFINISHED:  # those were never cut
                self.clear(document_id)
            return document_id
        document = Document(source_id=source_id, path=path, location=location)
        self.session.add(document)
        self.session.flush()
        assert document.id is not None
        return document.id

    def fail(self, source_id: int, path: str, location: str, error: str) -> None:
        document_id = self.emptied(source_id, path, location)
        self.session.connection().execute(
            update(Document)
            .where(col(Document.id) == document_id)
            .values(state=DocumentState.FAILED, error=error, sha256="", updated=now())
        )

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

    def rescope(self, document_ids: Sequence[int], scope: str, vectors: dict[str, bytes]) -> None:
        """`vectors` by text hash, of every passage of the documents."""
        connection = self.session.connection()
        connection.execute(
            update(Document)
            .where(col(Document.id).in_(document_ids))
            .values(scope=scope, inferred="", updated=now())
        )
        connection.execute(update(Chunk).where(col(Chunk.document_id).in_(document_ids)).values(scope=scope))
        connection.execute(update(Skill).where(col(Skill.document_id).in_(document_ids)).values(scope=scope))
        rows = connection.execute(
            select(col(Passage.id), col(Passage.partition), col(Chunk.kind), col(Passage.text_hash))
            .join(Chunk, col(Chunk.pk) == col(Passage.chunk_pk))
            .where(col(Chunk.document_id).in_(document_ids))
        ).all()
        for passage_id, old, kind, digest in rows:
            new = partition_of(kind, scope)
            if new != old:
                self.removed[old].add(passage_id)
                self.added[new][passage_id] = vectors[digest]
                connection.execute(update(Passage).where(col(Passage.id) == passage_id).values(partition=new))

    def replace(
        self, document: NewDocument, source_key: str, text_sha: str, vectors: dict[str, bytes]
    ) -> None:
        connection = self.session.connection()
        previous = previous_state(self.session, document.source_id, document.path) if document.skill else None
        document_id = self.emptied(document.source_id, document.path, document.location)
        connection.execute(
            update(Document)
            .where(col(Document.id) == document_id)
            .values(
                location=document.location, state=document.state, error="", sha256=document.sha256,
                recipe=document.recipe, text_sha=text_sha, loader=document.loader, kind=document.kind,
                scope=document.scope, inferred=document.inferred, title=document.title, meta=document.meta,
                notes=document.notes, size=document.size, updated=now(),
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


def stack(rows: dict[str, bytes]) -> tuple[list[str], Vectors]:
    """Ids in order and their vectors (len(ids), dimension), from stored little-endian float32."""
    import numpy as np

    ids = sorted(rows)
    return ids, np.stack([np.frombuffer(rows[i], dtype="<f4") for i in ids])


def _trace_row(document_id: int, ordinal: int, record: dict[str, Any]) -> dict[str, Any]:
    return {
        "document_id": document_id, "ordinal": ordinal, "format": record["format"], "kernel": record["name"],
        "duration_us": record["duration_us"], "bottleneck": record["bottleneck"],
        "record": {k: v for k, v in record.items() if k != "format"},
    }  # fmt: skip
