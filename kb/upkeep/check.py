"""Does everything that is stored agree: SQL with itself and both indexes, chunks with their documents?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select, text
from sqlmodel import col

from kb import lexical_index
from kb.errors import BlobMissing, IndexUnavailable
from kb.reembed import too_long
from kb.tables import (
    Chunk,
    Document,
    DocumentState,
    Embedding,
    Passage,
    Section,
    VectorIndexState,
    partition_of,
)
from kb.wording import counted

if TYPE_CHECKING:
    from kb.base import KnowledgeBase

_SHOWN = 20  # problems of one kind that are spelt out; the others are counted
_TOLERANCE = 1e-4  # of a component of a unit vector: Chroma normalises once more


@dataclass
class CheckReport:
    """`problems`: [{what, detail}], what is one of database, lexical, vectors, passage, document, chunk."""

    documents: int = 0
    chunks: int = 0
    passages: int = 0
    vectors: int = 0
    problems: list[dict[str, str]] = field(default_factory=list)
    problem_count: int = 0

    @property
    def ok(self) -> bool:
        return not self.problem_count

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def check(kb: KnowledgeBase) -> CheckReport:
    """Look at everything; repair nothing. `kb` is best opened with `repair=False`."""
    report = CheckReport()
    seen: Counter[str] = Counter()
    for part in (_database, _lexical, _vectors, _windows, _documents):
        for what, detail in part(kb, report):
            seen[what] += 1
            if seen[what] <= _SHOWN:
                report.problems.append({"what": what, "detail": detail})
    report.problem_count = seen.total()
    return report


def _database(kb: KnowledgeBase, report: CheckReport) -> Iterator[tuple[str, str]]:
    with kb.session() as session:
        connection = session.connection()
        for line in connection.execute(text("PRAGMA integrity_check(20)")).scalars():
            if line != "ok":
                yield "database", line
        for table, row, parent, _ in connection.execute(text("PRAGMA foreign_key_check")):
            yield "database", f"row {row} of {table} refers to a row of {parent} that does not exist"
        report.passages = connection.execute(select(func.count()).select_from(Passage)).scalar_one()
        counts = dict(
            connection.execute(
                select(col(Passage.partition), func.count()).group_by(col(Passage.partition))
            ).all()
        )
        recorded = dict(
            connection.execute(select(col(VectorIndexState.partition), col(VectorIndexState.count))).all()
        )
        for partition in sorted({*counts, *recorded}):
            if counts.get(partition, 0) != recorded.get(partition, 0):
                yield (
                    "database",
                    f"{partition} has {counted(counts.get(partition, 0), 'passage')}, "
                    f"{recorded.get(partition, 0)} are on record",
                )
        misplaced = connection.execute(
            select(func.count())
            .select_from(Passage)
            .join(Chunk, col(Chunk.pk) == col(Passage.chunk_pk))
            .where(col(Passage.partition) != col(Chunk.kind) + "@" + col(Chunk.scope))
        ).scalar_one()
        if misplaced:
            yield "database", f"passages that are in a partition that is not their chunk's: {misplaced}"


def _lexical(kb: KnowledgeBase, report: CheckReport) -> Iterator[tuple[str, str]]:
    with kb.session() as session:
        report.chunks = session.connection().execute(select(func.count()).select_from(Chunk)).scalar_one()
        problem = lexical_index.problem(session.connection())
        if problem is not None:
            yield "lexical", f"the lexical index {problem}"
            return
        for partition in lexical_index.disagreeing(session.connection()):
            yield "lexical", f"the lexical index of {partition} does not hold the text of its chunks"
        session.rollback()


def _vectors(kb: KnowledgeBase, report: CheckReport) -> Iterator[tuple[str, str]]:
    if not kb.expected_vectors():
        return
    model = kb.serving.model_id
    expected = {p: n for p, (_, n) in kb.indexed_vectors().items() if n}
    if not expected:
        yield from _stored_vectors(kb, model, report)
        return
    problem = kb.vectors.check(model, kb.indexed_vectors)
    if problem is not None:
        yield "vectors", f"the vector index {problem}"
        return
    held: Counter[str] = Counter()
    try:
        for partition, ids, vectors in kb.vectors.contents(model):
            held[partition] += len(ids)
            report.vectors += len(ids)
            yield from _compare(kb, model, partition, ids, vectors)
    except IndexUnavailable as error:
        yield "vectors", str(error)
        return
    for partition, count in expected.items():
        if held[partition] != count:
            yield (
                "vectors",
                f"{partition}: the vector index holds {held[partition]} of {counted(count, 'passage')}",
            )


def _stored_vectors(kb: KnowledgeBase, model: str, report: CheckReport) -> Iterator[tuple[str, str]]:
    """Those in the database, which are compared one by one where there is no index."""
    import numpy as np

    lengths: Counter[int] = Counter()
    with kb.session() as session:
        rows = session.connection().exec_driver_sql(
            'SELECT passage.id, passage."partition", embedding.vector FROM passage LEFT JOIN embedding'
            " ON embedding.text_hash = passage.text_hash AND embedding.model = ?",
            (model,),
        )
        for passage_id, partition, stored in rows:
            if stored is None:
                yield "vectors", f"{partition}: passage {passage_id[:12]} has no vector"
                continue
            report.vectors += 1
            lengths[len(stored)] += 1
            whole = len(stored) % 4 == 0
            if not whole or abs(np.linalg.norm(np.frombuffer(stored, dtype="<f4")) - 1) > _TOLERANCE:
                yield "vectors", f"{partition}: the vector of passage {passage_id[:12]} is damaged"
    if len(lengths) > 1:
        yield "vectors", "stored vectors of one model differ in length"


def _compare(
    kb: KnowledgeBase, model: str, partition: str, ids: list[str], vectors: Any
) -> Iterator[tuple[str, str]]:
    import numpy as np

    known: dict[str, bytes | None] = {}
    with kb.session() as session:
        for i in range(0, len(ids), 500):
            rows = session.connection().execute(
                select(col(Passage.id), col(Embedding.vector))
                .outerjoin(
                    Embedding,
                    (col(Embedding.text_hash) == col(Passage.text_hash)) & (col(Embedding.model) == model),
                )
                .where(col(Passage.partition) == partition, col(Passage.id).in_(ids[i : i + 500]))
            )
            known.update((passage, vector) for passage, vector in rows)
    for passage_id, vector in zip(ids, vectors, strict=True):
        if passage_id not in known:
            yield "vectors", f"{partition}: the vector index holds {passage_id[:12]}, the database does not"
            continue
        stored = known[passage_id]
        if stored is None:  # the cache was emptied; the index is the only copy
            continue
        truth = np.frombuffer(stored, dtype="<f4")
        if truth.shape != vector.shape or float(np.abs(truth - vector).max()) > _TOLERANCE:
            yield "vectors", f"{partition}: the vector of passage {passage_id[:12]} is not the database's"


def _windows(kb: KnowledgeBase, _report: CheckReport) -> Iterator[tuple[str, str]]:
    """Passages that were cut for a model that reads more than the one that serves."""
    if not kb.expected_vectors():
        return
    embedder = kb.serving.answering
    if embedder is None:
        yield "model", f"the embedding model that made the vectors cannot be used: {kb.serving.lost}"
    else:
        for path, n in too_long(kb, embedder).items():
            unread = counted(n, "passage")
            yield "passage", f"{path}: the model does not read the end of {unread}; ingest it again"


def _documents(kb: KnowledgeBase, report: CheckReport) -> Iterator[tuple[str, str]]:
    with kb.session() as session:
        connection = session.connection()
        documents = connection.execute(
            select(col(Document.id), col(Document.path), col(Document.text_sha), col(Document.kind),
                   col(Document.scope), col(Document.state)).order_by(col(Document.id))
        ).all()  # fmt: skip
        report.documents = len(documents)
        for document_id, path, text_sha, kind, scope, state in documents:
            chunks = connection.execute(
                select(col(Chunk.id), col(Chunk.text), col(Chunk.start_line), col(Chunk.end_line),
                       col(Chunk.kind), col(Chunk.scope), col(Section.rendered))
                .join(Section, col(Section.id) == col(Chunk.section_id))
                .where(col(Chunk.document_id) == document_id)
            ).all()  # fmt: skip
            if state == DocumentState.EMBEDDED and not chunks:
                yield "document", f"{path} is stored without any text"
            if not chunks:
                continue
            try:
                lines = _bare(kb.blobs.text(text_sha)).split("\n")
            except BlobMissing as error:
                yield "document", f"{path}: {error}"
                continue
            for chunk_id, chunk, start, end, chunk_kind, chunk_scope, rendered in chunks:
                where = f"{path}:{start}-{end} (chunk {chunk_id[:12]})"
                if partition_of(chunk_kind, chunk_scope) != partition_of(kind, scope):
                    yield "chunk", f"{where} has another kind or scope than its document"
                if not in_place(lines, _bare(chunk), start, end, rendered=rendered):
                    yield "chunk", f"{where} is not what the document says there"


def _bare(text: str) -> str:
    """Without the blanks of blank lines, which chunks do not keep."""
    return re.sub(r"^[^\S\n]+$", "", text, flags=re.MULTILINE)


def in_place(lines: list[str], chunk: str, start: int, end: int, *, rendered: bool) -> bool:
    """Whether lines `start`..`end` (1-based, inclusive) are the chunk, or one line has it as a part.

    Text that a loader rendered is not the lines' own: only the span can be checked. The later parts of a long
    table begin with its header, which stands further up.
    """
    if not 1 <= start <= end <= len(lines):
        return False
    if rendered:
        return True
    span = "\n".join(lines[start - 1 : end])
    if chunk == span or (start == end and chunk in span):
        return True
    above = "\n".join(lines[:end])
    for cut in re.finditer("\n", chunk):
        header, body = chunk[: cut.start()], chunk[cut.end() :]
        if (body == span or (start == end and body in span)) and header in above:
            return True
    return False
