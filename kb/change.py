"""One change of the documents: its statements, and what they mean for the vector index."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlmodel import col

from kb import lexical_index
from kb.skills import NewSkill, previous_state, remove_skills, write_skill
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

T = TypeVar("T")
Place = tuple[int, str, str]  # of a document: source id, path, location

_IN_CLAUSE = 500  # SQLite limits the number of bound variables
# What a document's row takes from NewDocument as it is.
_COPIED = (
    "location", "sha256", "recipe", "loader", "kind", "scope", "inferred", "title", "meta", "notes", "size",
)  # fmt: skip


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
        self._rewritten: set[str] = set()  # partitions whose chunks were touched

    def emptied(self, documents: Sequence[Place]) -> list[int]:
        """The ids of documents of which only the rows are left; made where there were none."""
        connection = self.session.connection()
        known: dict[tuple[int, str], int] = {}
        used = []  # the others were never cut
        paths: dict[int, list[str]] = defaultdict(list)
        for source_id, path, _ in documents:
            paths[source_id].append(path)
        for source_id, names in paths.items():
            for part in parts(names):
                rows = connection.execute(
                    select(col(Document.path), col(Document.id), col(Document.state)).where(
                        col(Document.source_id) == source_id, col(Document.path).in_(part)
                    )
                )
                for path, document_id, state in rows:
                    known[source_id, path] = document_id or 0
                    if state not in UNFINISHED:
                        used.append(document_id or 0)
        self.clear(used)
        new = [place for place in documents if place[:2] not in known]
        for (source_id, path, _), document_id in zip(new, self.announce(new), strict=True):
            known[source_id, path] = document_id
        return [known[source_id, path] for source_id, path, _ in documents]

    def announce(self, documents: Sequence[Place]) -> list[int]:
        """Make the rows of documents that are yet to be read. Returns their ids."""
        if not documents:
            return []
        empty = Document(source_id=0, path="", location="").model_dump(exclude={"id"})
        rows = [{**empty, "source_id": s, "path": p, "location": at} for s, p, at in documents]
        return _insert_returning(self.session.connection(), Document, col(Document.id), rows)

    def fail(self, failures: Sequence[tuple[int, str, str, str]]) -> None:
        """(source id, path, location, error) of each."""
        ids = self.emptied([failure[:3] for failure in failures])
        self.session.connection().execute(
            update(Document)
            .where(col(Document.id) == bindparam("document"))
            .values(state=DocumentState.FAILED, error=bindparam("why"), sha256="", updated=now()),
            [{"document": i, "why": failure[3]} for i, failure in zip(ids, failures, strict=True)],
        )

    def clear(self, document_ids: Sequence[int]) -> None:
        """Remove what documents were cut into, and their skills and traces, but not the documents' rows."""
        connection = self.session.connection()
        for part in parts(document_ids):
            self._rewritten |= {partition_of(*held) for held in self._held(part)}
            chunks = select(col(Chunk.pk)).where(col(Chunk.document_id).in_(part))
            passages = select(col(Passage.id), col(Passage.partition)).where(
                col(Passage.chunk_pk).in_(chunks)
            )
            for passage_id, partition in connection.execute(passages):
                self.removed[partition].add(passage_id)
                self.added[partition].pop(passage_id, None)
            connection.execute(delete(Passage).where(col(Passage.chunk_pk).in_(chunks)))
            for table in (Chunk, Section, Trace):
                connection.execute(delete(table).where(col(table.document_id).in_(part)))
            remove_skills(self.session, part)

    def forget(self, document_ids: Sequence[int]) -> None:
        """Remove documents with everything derived from them."""
        self.clear(document_ids)
        for part in parts(document_ids):
            self.session.connection().execute(delete(Document).where(col(Document.id).in_(part)))

    def _held(self, document_ids: Sequence[int]) -> set[tuple[str, str]]:
        """Kind and scope of the chunks of documents."""
        rows = self.session.connection().execute(
            select(col(Chunk.kind), col(Chunk.scope))
            .where(col(Chunk.document_id).in_(document_ids))
            .distinct()
        )
        return {(kind, scope) for kind, scope in rows}

    def rescope(self, document_ids: Sequence[int], scope: str, vectors: dict[str, bytes]) -> None:
        """`vectors` by text hash, of every passage of the documents."""
        connection = self.session.connection()
        connection.execute(
            update(Document)
            .where(col(Document.id).in_(document_ids))
            .values(scope=scope, inferred="", updated=now())
        )
        for kind, before in self._held(document_ids):
            lexical_index.ensure(connection, kind, scope)
            self._rewritten |= {partition_of(kind, before), partition_of(kind, scope)}
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
        self,
        documents: Sequence[NewDocument],
        source_keys: dict[int, str],
        text_shas: Sequence[str],
        vectors: dict[str, bytes],
    ) -> None:
        """Store documents, no two of one path, in place of what their paths held before."""
        connection = self.session.connection()
        before = [previous_state(self.session, d.source_id, d.path) if d.skill else None for d in documents]
        ids = self.emptied([(d.source_id, d.path, d.location) for d in documents])
        names = (*_COPIED, "state", "text_sha", "error", "updated")
        connection.execute(
            update(Document)
            .where(col(Document.id) == bindparam("document"))
            .values({name: bindparam(f"new_{name}") for name in names}),
            [
                {f"new_{name}": getattr(d, name) for name in _COPIED}
                | {
                    "document": i,
                    "new_state": d.state,
                    "new_text_sha": sha,
                    "new_error": "",
                    "new_updated": now(),
                }
                for d, i, sha in zip(documents, ids, text_shas, strict=True)
            ],
        )
        self._write_chunks([*zip(ids, documents, strict=True)], source_keys, vectors)
        traces = [
            _trace_row(i, n, t) for i, d in zip(ids, documents, strict=True) for n, t in enumerate(d.traces)
        ]
        if traces:
            connection.execute(insert(Trace), traces)
        for document_id, document, previous in zip(ids, documents, before, strict=True):
            if document.skill is not None:
                write_skill(self.session, document_id, document.skill, previous)

    def _write_chunks(
        self,
        documents: Sequence[tuple[int, NewDocument]],
        source_keys: dict[int, str],
        vectors: dict[str, bytes],
    ) -> None:
        connection = self.session.connection()
        sections = [
            {"document_id": document_id, "ordinal": i, **vars(section)}
            for document_id, document in documents
            if document.chunks
            for i, section in enumerate(document.sections)
        ]
        section_ids = iter(_insert_returning(connection, Section, col(Section.id), sections))
        chunks: list[NewChunk] = []
        rows: list[dict[str, Any]] = []
        for document_id, document in documents:
            if not document.chunks:
                continue
            own = list(islice(section_ids, len(document.sections)))
            key = source_keys[document.source_id]
            chunks += document.chunks
            rows += (
                {
                    "id": chunk_id(key, document.path, i, c.text), "document_id": document_id,
                    "section_id": own[c.section], "ordinal": i, "scope": document.scope,
                    "kind": document.kind, "breadcrumb": c.breadcrumb, "text": c.text,
                    "start_line": c.start_line, "end_line": c.end_line, "page": c.page,
                }
                for i, c in enumerate(document.chunks)
            )  # fmt: skip
        for kind, scope in {(row["kind"], row["scope"]) for row in rows}:
            lexical_index.ensure(connection, kind, scope)
            self._rewritten.add(partition_of(kind, scope))
        chunk_pks = _insert_returning(connection, Chunk, col(Chunk.pk), rows)
        passages = []
        for chunk, row, chunk_pk in zip(chunks, rows, chunk_pks, strict=True):
            partition = partition_of(row["kind"], row["scope"])
            for j, passage in enumerate(chunk.passages):
                digest = text_hash(passage)
                passage_id = text_hash(f"{row['id']}\x00{j}\x00{passage}")
                passages.append(
                    {
                        "id": passage_id, "chunk_pk": chunk_pk, "partition": partition, "ordinal": j,
                        "text": passage, "text_hash": digest,
                    }
                )  # fmt: skip
                if passage_id in self.removed[partition]:
                    self.removed[partition].discard(passage_id)  # unchanged: the index has it already
                else:
                    self.added[partition][passage_id] = vectors[digest]
        if passages:
            connection.execute(insert(Passage), passages)

    def bump(self) -> None:
        """Record what the indexes must hold from now on."""
        connection = self.session.connection()
        lexical_index.settle(connection, sorted(self._rewritten))
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


def parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """`items` in the numbers that one statement may list."""
    for i in range(0, len(items), _IN_CLAUSE):
        yield items[i : i + _IN_CLAUSE]


def _insert_returning(connection: Any, table: Any, key: Any, rows: list[dict[str, Any]]) -> list[int]:
    if not rows:
        return []
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
