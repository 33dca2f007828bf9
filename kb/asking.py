"""Asking several questions as one, and refining what is found with the models that a user has configured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kb.errors import ModelError, RefinementFailed
from kb.folding import fold
from kb.records import Hit, SubQuery
from kb.rerank import RERANKED, CrossEncoderReranker, Reranker, rerank
from kb.retrieval import QueryResult, query

if TYPE_CHECKING:
    from kb.base import KnowledgeBase
    from kb.chat import ChatModel
    from kb.settings import Settings

# How fast a place loses its worth: with the usual 60, what all rank thirtieth beats the first of one.
_RANK_OFFSET = 6
_DEPTH = 50  # hits of each question that are fused
_ATTEMPTS = 2  # of a call to the chat model: somebody is waiting


@dataclass(frozen=True)
class Refiner:
    """What refines queries: a chat model that says them in other words, a reranker; either may be missing."""

    rewriter: ChatModel | None = None
    reranker: Reranker | None = None

    @classmethod
    def of(cls, settings: Settings) -> Refiner | None:
        """As configured; None where nothing is. The cross-encoder goes before the chat model's ordering.

        Raises RefinementFailed when the chat model cannot be opened.
        """
        model: ChatModel | None = None
        reranker: Reranker | None = None
        if settings.chat_model:
            from kb.chat import open_model
            from kb.model_help import ListwiseReranker

            url = settings.chat_base_url or None
            try:
                model = open_model(
                    settings.chat_model, url, timeout_s=settings.chat_timeout_s, attempts=_ATTEMPTS
                )
            except ModelError as error:
                raise _failed(error) from error
            reranker = ListwiseReranker(model)
        if settings.cross_encoder:
            reranker = CrossEncoderReranker(settings.cross_encoder)
        return cls(model, reranker) if model or reranker else None


def query_many(
    kb: KnowledgeBase,
    questions: Sequence[SubQuery],
    *,
    target: str | None = None,
    kinds: Sequence[str] | None = None,
    k: int = 10,
) -> QueryResult:
    """The `k` best chunks for all `questions` together, fused by rank; `why.asked` names the questions that
    brought a hit, with its rank there. Raises what `kb.retrieval.query` raises.
    """
    started = time.perf_counter()
    asked = [q for q in questions if q.text.strip()]
    results = [query(kb, q.text, target=target, kinds=kinds, k=max(k, _DEPTH)) for q in asked]
    hits = fold(_fused(asked, results), k)
    inferred = next((r.inferred for r in results if r.inferred is not None), None)
    text = "\n".join(q.text for q in asked)
    return QueryResult(text, (time.perf_counter() - started) * 1e3, hits, inferred)


def refine(
    kb: KnowledgeBase,
    refiner: Refiner,
    questions: Sequence[SubQuery],
    *,
    target: str | None = None,
    kinds: Sequence[str] | None = None,
    k: int = 10,
) -> QueryResult:
    """As `query_many`, with the help of models. A single question is said in other words, too: it counts as
    much as all of these together. What was found is then reranked.

    Raises RefinementFailed when a model does not answer: what it was to do is not left out unseen.
    """
    started = time.perf_counter()
    text = "\n".join(q.text for q in questions)
    refined: dict[str, Any] = {}
    try:
        if refiner.rewriter is not None and len(questions) == 1 and text.strip():
            from kb.model_help import rewrite

            others = rewrite(refiner.rewriter, text)
            questions = [questions[0], *(SubQuery(o, "in other words", 1 / len(others)) for o in others)]
            refined = {"rewritten_by": refiner.rewriter.name, "rewritten": others}
        found = query_many(kb, questions, target=target, kinds=kinds, k=max(k, RERANKED))
        hits = found.hits
        if refiner.reranker is not None and len(hits) > 1:
            hits = rerank(refiner.reranker, text, hits)
            refined["reranked_by"] = refiner.reranker.name
    except ModelError as error:
        raise _failed(error) from error
    elapsed_ms = (time.perf_counter() - started) * 1e3
    return replace(found, query=text, elapsed_ms=elapsed_ms, hits=hits[:k], refined=refined)


def _failed(error: ModelError) -> RefinementFailed:
    hint = f"{error.hint or 'check the model'}; `query --no-rerank` asks without it"
    return RefinementFailed(str(error), hint)


def _fused(questions: Sequence[SubQuery], results: Sequence[QueryResult]) -> list[Hit]:
    """Each hit once, as the question has it that ranks it best; the score is the questions' weighted mean."""
    total = sum(q.weight for q in questions)
    scores: dict[str, float] = {}
    best: dict[str, Hit] = {}
    asked: dict[str, list[dict[str, Any]]] = {}
    for question, result in zip(questions, results, strict=True):
        for hit in result.hits:
            key = hit.chunk_id
            worth = (_RANK_OFFSET + 1) / (_RANK_OFFSET + hit.rank)
            scores[key] = scores.get(key, 0.0) + question.weight / total * worth
            if key not in best or hit.rank < best[key].rank:
                best[key] = hit
            said = {"query": question.text, "purpose": question.purpose, "rank": hit.rank}
            asked.setdefault(key, []).append(said)
    ranked = sorted(best, key=lambda key: (-round(scores[key], 9), key))
    return [
        replace(best[key], rank=rank, score=round(scores[key], 6), why=best[key].why | {"asked": asked[key]})
        for rank, key in enumerate(ranked, start=1)
    ]
