"""What is stored beside the answers: all passages, and the chunks that the words of a question find."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlmodel import col

from kb import lexical
from kb.adaptation.examples import Pair, StoredPassage
from kb.questions import plain_question
from kb.tables import Chunk, LexicalIndexState, Passage

if TYPE_CHECKING:
    from kb.base import KnowledgeBase

_FOUND = 16  # chunks, the right one perhaps among them


def stored_passages(kb: KnowledgeBase) -> list[StoredPassage]:
    """In a reproducible order; a chunk's passages in theirs."""
    with kb.session() as session:
        rows = session.connection().execute(
            select(col(Chunk.pk), col(Chunk.scope), col(Passage.text))
            .join(Chunk, col(Chunk.pk) == col(Passage.chunk_pk))
            .order_by(col(Chunk.id), col(Passage.ordinal))
        )
        return [StoredPassage(pk or 0, scope, text) for pk, scope, text in rows]


def with_lexical(
    kb: KnowledgeBase, pairs: Sequence[Pair], progress: Callable[[int, int], None] | None = None
) -> list[Pair]:
    """`pairs` with the chunks of their scope that the words of their questions find."""
    found = []
    with kb.session() as session:
        partitions: dict[str, dict[str, int]] = defaultdict(dict)
        state = LexicalIndexState
        rows = session.connection().execute(select(col(state.partition), col(state.scope), col(state.chunks)))
        for partition, scope, chunks in rows:
            partitions[scope][partition] = chunks
        for done, pair in enumerate(pairs, start=1):
            terms = lexical.terms_of(plain_question(pair.question))
            hits = lexical.search(session, terms, partitions[pair.scope], limit=_FOUND)
            chunks_found = tuple(hit.chunk_pk for hit in hits if hit.chunk_pk != pair.chunk)
            found.append(replace(pair, lexical=chunks_found))
            if progress is not None:
                progress(done, len(pairs))
    return found
