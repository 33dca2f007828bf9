"""Hybrid retrieval: BM25 over chunks and vectors over their passages, fused per chunk.

Both sides see only the scopes of the target and the kinds asked for; nothing is filtered afterwards, so the
filter can lose no hit. What both know of a chunk becomes one score (`kb/fusion.py`).
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlmodel import col

from kb import credit, focus, lexical
from kb import scope as scopes
from kb.database import fetch_all
from kb.errors import StoreDamaged
from kb.focus import Focus
from kb.folding import fold
from kb.fusion import CREDIT, Candidate, fuse
from kb.questions import plain_question
from kb.records import Hit
from kb.tables import LOCAL_ONLY, Chunk, Document, LexicalIndexState, Section, Source, scope_of

if TYPE_CHECKING:
    from sqlmodel import Session

    from kb.base import KnowledgeBase
    from kb.catalogue import Selection

LEXICAL_CANDIDATES = 200
PASSAGE_CANDIDATES = 200


@dataclass(frozen=True)
class QueryResult:
    """Hits in order of rank; `elapsed_ms` covers embedding, search and loading. `inferred` is what a question
    without a target was taken to be about.
    """

    query: str
    elapsed_ms: float
    hits: list[Hit]
    inferred: Focus | None = None
    refined: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        said: dict[str, Any] = {"inferred": self.inferred.to_json()} if self.inferred else {}
        if self.refined:
            said["refined"] = self.refined
        return {
            "query": self.query,
            "elapsed_ms": round(self.elapsed_ms, 3),
            **said,
            "hits": [h.to_json() for h in self.hits],
        }


@dataclass(frozen=True)
class _Asked:
    """What every hit says about the question that brought it."""

    terms: Sequence[str]
    target: str | None
    inferred: Focus | None


def query(
    kb: KnowledgeBase,
    text: str,
    *,
    target: str | None = None,
    kinds: Sequence[str] | None = None,
    k: int = 10,
    within: Selection | None = None,
    credited: bool = False,
) -> QueryResult:
    """The `k` best chunks for `text`, best first, in a reproducible order; `within` names the documents that
    they may come from. `credited`: what candidates achieved after they were shown counts, too (`kb.credit`).

    Those that repeat one above them are named there (`why.also_at`). Without a target, what the question
    seems to be about is preferred (`kb.focus`).

    Raises EmbeddingFailed or IndexUnavailable: a side that does not answer is an error, not a poorer result;
    except an embedding model that is being replaced, as `kb.notices` then says.
    """
    started = time.perf_counter()
    with kb.session() as session:
        session.connection().exec_driver_sql("BEGIN")  # one state of the database for all that follows
        partitions = _partitions(session, target, kinds)
        asked = plain_question(text)
        terms = lexical.terms_of(asked)
        candidates: dict[int, Candidate] = {}
        inferred = None
        if partitions and asked.strip() and k > 0:
            try:
                found = _add_lexical(session, candidates, terms, partitions, within)
            except StoreDamaged:  # most likely the derived index; if it is the database, this fails again
                session.rollback()
                kb.rebuild_lexical("failed")
                found = _add_lexical(session, candidates, terms, partitions, within)
            _add_dense(kb, session, candidates, asked, list(partitions), within=within)
            inferred = _inferred(asked, terms, partitions, found) if target is None else None
        fuse(candidates.values(), sum(partitions.values()))
        if inferred is not None:
            _prefer(session, candidates, inferred)
        hits = _load(session, candidates, _Asked(terms, target, inferred), k, credited=credited)
    return QueryResult(text, (time.perf_counter() - started) * 1e3, hits, inferred)


def _partitions(session: Session, target: str | None, kinds: Sequence[str] | None) -> dict[str, int]:
    """The visible partitions that hold something: name -> number of chunks."""
    state = LexicalIndexState
    rows = (
        session.connection()
        .execute(
            select(col(state.partition), col(state.kind), col(state.scope), col(state.chunks)).order_by(
                col(state.partition)
            )
        )
        .all()
    )
    seen = set(scopes.visible({scope for _, _, scope, _ in rows}, target))
    return {p: n for p, kind, scope, n in rows if scope in seen and (kinds is None or kind in kinds)}


def _add_lexical(
    session: Session,
    candidates: dict[int, Candidate],
    terms: Sequence[str],
    partitions: Mapping[str, int],
    within: Selection | None,
) -> lexical.Frequencies:
    """How often the partitions have the terms."""
    known = lexical.frequencies(session, terms, partitions)
    allowed = None if within is None else within.of_chunks
    for hit in lexical.search(
        session,
        terms,
        partitions,
        limit=LEXICAL_CANDIDATES,
        known=known,
        allowed=allowed,
        shared=within is not None,
    ):
        candidate = candidates.setdefault(hit.chunk_pk, Candidate())
        candidate.bm25, candidate.coverage = hit.score, hit.coverage
    return known


def _add_dense(
    kb: KnowledgeBase,
    session: Session,
    candidates: dict[int, Candidate],
    text: str,
    partitions: Sequence[str],
    *,
    within: Selection | None,
) -> None:
    import numpy as np

    searched_by, found = kb.nearest_passages(text, partitions, PASSAGE_CANDIDATES, within)
    nearest = dict(found)
    if not nearest:
        return
    parents = fetch_all(
        session.connection(),
        "SELECT id, chunk_pk FROM passage WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(nearest)),),
    )
    if within is not None and parents:
        inside = within.of_chunks(np.array([pk for _, pk in parents], dtype=np.int64))
        parents = [pair for pair, kept in zip(parents, inside, strict=True) if kept]
    for passage_id, chunk_pk in parents:
        candidate = candidates.setdefault(chunk_pk, Candidate())
        candidate.similarity = max(candidate.similarity or -1.0, nearest[passage_id])
        candidate.searched_by = searched_by


def _inferred(
    text: str, terms: Sequence[str], partitions: Mapping[str, int], known: lexical.Frequencies
) -> Focus | None:
    sizes: Counter[str] = Counter()
    spread: dict[str, Counter[str]] = defaultdict(Counter)
    for partition, chunks in partitions.items():
        scope = scope_of(partition)
        sizes[scope] += chunks
        for term, count in zip(terms, known.get(partition, ()), strict=False):
            spread[term][scope] += int(count)
    return focus.infer(text, spread, sizes)


def _prefer(session: Session, candidates: dict[int, Candidate], inferred: Focus) -> None:
    """Raise what is in the preferred scopes."""
    rows = session.connection().execute(
        select(col(Chunk.pk), col(Chunk.scope)).where(col(Chunk.pk).in_(candidates))
    )
    for pk, scope in rows:
        if pk is not None and scope in inferred.scopes:
            candidates[pk].score += inferred.advantage


def _load(
    session: Session, candidates: dict[int, Candidate], asked: _Asked, k: int, *, credited: bool
) -> list[Hit]:
    if not candidates:
        return []
    # Ties are broken by the chunk's id, which does not depend on the order of ingestion.
    pks = json.dumps(list(candidates))
    found = "SELECT pk, id FROM chunk WHERE pk IN (SELECT value FROM json_each(?))"
    ids = dict(fetch_all(session.connection(), found, (pks,)))
    if credited:
        for pk, prior in _priors(session, ids).items():
            candidates[pk].credit = prior
            candidates[pk].score += CREDIT * prior
    ranked = sorted((pk for pk in candidates if pk in ids), key=lambda pk: (-candidates[pk].score, ids[pk]))
    return fold(_hits(session, candidates, ranked, asked, block=k), k)


def _priors(session: Session, ids: Mapping[int, str]) -> dict[int, float]:
    found = credit.priors(session.connection(), ids.values())
    return {pk: found[chunk_id] for pk, chunk_id in ids.items() if chunk_id in found}


def _hits(
    session: Session,
    candidates: Mapping[int, Candidate],
    ranked: Sequence[int],
    asked: _Asked,
    *,
    block: int,
) -> Iterator[Hit]:
    """In the order of `ranked`, loaded `block` at a time."""
    for start in range(0, len(ranked), block):
        rows = _rows(session, ranked[start : start + block])
        for rank, pk in enumerate(ranked[start : start + block], start=start + 1):
            if pk not in rows:  # another process has removed it meanwhile
                continue
            chunk, heading, document, source = rows[pk]
            candidate = candidates[pk]
            yield Hit(
                rank=rank,
                score=round(candidate.score, 6),
                kind=chunk.kind,
                source=source.name,
                path=document.path,
                section=heading,
                page=chunk.page,
                start_line=chunk.start_line,
                end_line=chunk.end_line,
                text=chunk.text,
                citation=citation(document.path, chunk.start_line, chunk.end_line, heading, chunk.page),
                chunk_id=chunk.id,
                why=_why(candidate, chunk, asked),
                meta=document.meta,
                local_only=source.visibility == LOCAL_ONLY,
            )


def _rows(session: Session, pks: Sequence[int]) -> dict[int, tuple[Chunk, str, Document, Source]]:
    from sqlmodel import select as select_rows

    rows = session.exec(
        select_rows(Chunk, col(Section.heading_path), Document, Source)
        .join(Section, col(Section.id) == col(Chunk.section_id))
        .join(Document, col(Document.id) == col(Chunk.document_id))
        .join(Source, col(Source.id) == col(Document.source_id))
        .where(col(Chunk.pk).in_(pks))
    )
    return {
        chunk.pk: (chunk, heading, document, source) for chunk, heading, document, source in rows if chunk.pk
    }


def _why(candidate: Candidate, chunk: Chunk, asked: _Asked) -> dict[str, Any]:
    guess = {}
    if asked.inferred is not None:
        guess["inferred"] = asked.inferred.to_json() | {"inside": chunk.scope in asked.inferred.scopes}
    return {
        "terms": lexical.matched_terms(asked.terms, f"{chunk.breadcrumb}\n{chunk.text}")
        if candidate.bm25
        else [],
        "bm25": None if candidate.bm25 is None else round(candidate.bm25, 4),
        "coverage": None if candidate.coverage is None else round(candidate.coverage, 4),
        "similarity": None if candidate.similarity is None else round(candidate.similarity, 4),
        "vectors": candidate.searched_by,
        "scope": chunk.scope,
        "target": asked.target,
        **guess,
        **({"credit": candidate.credit} if candidate.credit else {}),
    }


def citation(path: str, start_line: int, end_line: int, heading: str, page: int | None = None) -> str:
    """`path:start-end § heading`, with the page where there are pages."""
    where = f"{path}:{start_line}-{end_line}"
    if page is not None:
        where += f" p. {page}"
    return f"{where} § {heading}" if heading else where
