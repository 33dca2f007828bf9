"""Preparing the embedding model that the settings name while another one answers, then changing over.

One process for each home does it. Every batch is kept: killed at any moment, the next process goes on.
Nobody who asks has to wait: vectors lie in the database by model, and the new index is filled in a folder of
its own. Only the exchange at the end excludes writers and, for the time of a rename, readers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import exists, select
from sqlmodel import col

from kb.change import text_hash
from kb.documents import embed_texts, known_vectors, read_vectors, sources_of
from kb.errors import IndexOutOfStep, KnowledgeBaseError, ModelChanged, StoreLocked
from kb.locks import home_lock, reembed_lock
from kb.model_record import count
from kb.tables import Chunk, Document, Embedding, Passage
from kb.upkeep.quota import Quota

if TYPE_CHECKING:
    from kb.base import KnowledgeBase
    from kb.embedding import Embedder
    from kb.vectors import VectorIndex

_BATCH = 256
_ROWS = 2000
_VECTOR_BYTES = 8_000  # of a text in the database and in the index
_LONGEST_WAIT_S = 5.0  # for whoever writes documents, before looking for new ones

Progress = Callable[[int, int], None]
# Texts, with the ids of their sources, that will be needed once the model serves.
Foreseen = Callable[["Embedder"], tuple[Iterable[str], set[int]]]


@dataclass
class ReembedReport:
    """`model` serves now; `switched` where another one did before. `embedded` texts were new, of those of
    all `passages`.
    """

    model: str
    switched: bool = False
    embedded: int = 0
    passages: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def reembed(
    kb: KnowledgeBase,
    *,
    foreseen: Foreseen | None = None,
    progress: Progress = lambda *_: None,
) -> ReembedReport:
    """Have the model that the settings name serve, after everything that is stored has a vector of it.

    Raises StoreLocked where another process is at it, ModelChanged where the settings of another process name
    something else meanwhile, IndexOutOfStep where the new index does not come out right, EmbeddingFailed,
    LocalOnly, QuotaExceeded.
    """
    with reembed_lock(kb.home, timeout_s=0.0):
        embedder = kb.serving.asked_anew()
        if embedder is None:
            kb.repair_vectors()
            return ReembedReport(kb.embedder.model_id)
        row = kb.serving.prepare(embedder)
        report = ReembedReport(embedder.model_id, passages=row.total)
        try:
            with contextlib.closing(kb.next_index()) as index:
                _work(kb, embedder, index, report, foreseen, progress)
        except KnowledgeBaseError as error:
            with kb.session() as session:
                done, total = count(session.connection(), embedder.model_id)
            kb.serving.record.advance(embedder.model_id, done, total, str(error))
            raise
        return report


def running(home: Path) -> bool:
    """Whether a process is preparing the next model."""
    try:
        with reembed_lock(home, timeout_s=0.0):
            return False
    except StoreLocked:
        return True


def _work(  # noqa: PLR0917
    kb: KnowledgeBase,
    embedder: Embedder,
    index: VectorIndex,
    report: ReembedReport,
    foreseen: Foreseen | None,
    progress: Progress,
) -> None:
    while True:
        before = kb.expected_vectors()
        report.embedded += _embed_passages(kb, embedder, progress)
        if foreseen is not None:
            _embed_foreseen(kb, embedder, foreseen)
        if kb.indexed_vectors():
            index.fill(embedder.model_id, kb.indexed_vectors(), lambda p: read_vectors(kb, embedder, p))
        # Documents may have been stored meanwhile; those who store them hold this lock.
        with contextlib.suppress(StoreLocked), home_lock(kb.home, timeout_s=_LONGEST_WAIT_S):
            with kb.session() as session:
                done, report.passages = count(session.connection(), embedder.model_id)
            indexed = bool(kb.indexed_vectors())
            problem = index.check(embedder.model_id, kb.indexed_vectors)
            if done == report.passages and problem is None:
                with kb.vectors.exclusive():
                    _still_wanted(kb, embedder, done, report.passages)
                    kb.serving.switch(embedder)
                    if indexed:
                        kb.vectors.adopt(index)
                report.switched = True
                return
            if kb.expected_vectors() == before:  # nobody has stored anything: it would be so for ever
                what = f"{report.passages - done} passages have no vector" if problem is None else problem
                raise IndexOutOfStep(
                    f"the index of the next embedding model {what} after all was embedded",
                    "look at the disk, then run `kernelevolve kb reembed` again",
                )


def _still_wanted(kb: KnowledgeBase, embedder: Embedder, done: int, total: int) -> None:
    if not kb.serving.record.advance(embedder.model_id, done, total):
        raise ModelChanged(
            "another process has named another embedding model for this home", "what was embedded is kept"
        )


def _embed_passages(kb: KnowledgeBase, embedder: Embedder, progress: Progress) -> int:
    """Embed every passage that has no vector of the model; how many texts there were."""
    quota = Quota(kb)
    with kb.session() as session:
        start, total = count(session.connection(), embedder.model_id)
    done, after = start, ""
    has_vector = exists().where(
        col(Embedding.text_hash) == col(Passage.text_hash), col(Embedding.model) == embedder.model_id
    )
    while True:
        with kb.session() as session:
            rows = session.connection().execute(
                select(col(Passage.text_hash), col(Passage.text))
                .where(col(Passage.text_hash) > after, ~has_vector)
                .group_by(col(Passage.text_hash))
                .order_by(col(Passage.text_hash))
                .limit(_BATCH)
            )
            texts = {digest: text for digest, text in rows}  # noqa: C416 - rows are not pairs to mypy
            sources = sources_of(session, list(texts))
        _still_wanted(kb, embedder, done, max(done, total))
        progress(done, max(done, total))
        if not texts:
            return done - start
        quota.reserve(_VECTOR_BYTES * len(texts))
        embed_texts(kb, embedder, texts, sources)
        done += len(texts)
        after = max(texts)


def _embed_foreseen(kb: KnowledgeBase, embedder: Embedder, foreseen: Foreseen) -> None:
    found, sources = foreseen(embedder)
    texts = {text_hash(text): text for text in found}
    with kb.session() as session:
        known = known_vectors(session, embedder.model_id, list(texts))
    missing = {digest: text for digest, text in texts.items() if digest not in known}
    embed_texts(kb, embedder, missing, sources)


def too_long(kb: KnowledgeBase, embedder: Embedder) -> dict[str, int]:
    """Documents with passages of which the model does not read the end: path -> how many.

    They were cut for another model; ingesting them cuts them again.
    """
    found: dict[str, int] = {}
    after = ""
    while True:
        with kb.session() as session:
            rows = session.connection().execute(
                select(col(Passage.id), col(Passage.text), col(Document.path))
                .join(Chunk, col(Chunk.pk) == col(Passage.chunk_pk))
                .join(Document, col(Document.id) == col(Chunk.document_id))
                .where(col(Passage.id) > after)
                .order_by(col(Passage.id))
                .limit(_ROWS)
            ).all()  # fmt: skip
        if not rows:
            return dict(sorted(found.items()))
        lengths = embedder.count_tokens([text for _, text, _ in rows])
        for (_, _, path), length in zip(rows, lengths, strict=True):
            if length > embedder.window:
                found[path] = found.get(path, 0) + 1
        after = rows[-1][0]
