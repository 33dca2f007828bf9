"""Measuring retrieval: queries with known answers against a knowledge base.

A benchmark is a file of JSON lines: `id`, `query`, `gold` (a list of `path` and `substring`), and optionally
`target` and `kind`. A hit answers a query if it comes from a gold passage's file and its text contains the
passage's substring, both with runs of white space taken as one blank. Several gold passages of one query are
alternatives: the first hit that answers counts.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kb.errors import BenchmarkInvalid

if TYPE_CHECKING:
    from kb.base import KnowledgeBase

DEPTH = 10  # how far down nDCG and the reciprocal rank look
CONTEXT_CHARACTERS = 8000  # about what a prompt has room for
# As many hits as it may take to fill those characters; ranks beyond DEPTH count for nothing else.
ASKED = 50


@dataclass(frozen=True)
class Gold:
    """A passage that answers: its document's path below the corpus, and words that only it contains."""

    path: str
    substring: str


@dataclass(frozen=True)
class BenchmarkQuery:
    """A question. `target` as a scope label or target name; `kind` groups questions in the report."""

    query_id: str
    text: str
    gold: tuple[Gold, ...]
    target: str | None
    kind: str


@dataclass(frozen=True)
class Answer:
    """What retrieval made of one query. `rank` of the first hit that answers, None where none does;
    `characters` that were returned up to its end; `elapsed_ms` of the whole query.
    """

    query: BenchmarkQuery
    rank: int | None
    characters: int | None
    elapsed_ms: float


def read_benchmark(path: Path) -> list[BenchmarkQuery]:
    """Raises BenchmarkInvalid with the first line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise BenchmarkInvalid(f"{path} cannot be read: {error}", "give a file of JSON lines") from error
    found = [_query(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not found:
        raise BenchmarkInvalid(f"{path} holds no queries", "one JSON object per line: query, gold")
    return found


def _query(path: Path, number: int, line: str) -> BenchmarkQuery:
    try:
        row = json.loads(line)
        gold = tuple(Gold(str(g["path"]), _plain(str(g["substring"]))) for g in row["gold"])
        text, target = str(row["query"]), row.get("target")
        if not gold or not text.strip() or not all(g.substring for g in gold):
            raise ValueError("empty")
        label = None if target is None else str(target)
        return BenchmarkQuery(str(row.get("id", number)), text, gold, label, str(row.get("kind", "")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = "each line needs query and gold: [{path, substring}]"
        example = '{"query": "…", "gold": [{"path": "a.md", "substring": "…"}]}'
        raise BenchmarkInvalid(f"{path}, line {number}: {what}", f"for example: {example}") from error


class Found(Protocol):
    """A passage that was returned: its document's path below the corpus, and its text."""

    @property
    def path(self) -> str: ...

    @property
    def text(self) -> str: ...


def unanswerable(kb: KnowledgeBase, queries: Sequence[BenchmarkQuery]) -> list[dict[str, str]]:
    """[{id, path, why}]: passages that no hit can be, because nothing of their path is stored, or because no
    chunk of it has their words. A question that has no other counts as one that was not answered.
    """
    from sqlalchemy import select
    from sqlmodel import col

    from kb.tables import Chunk, Document

    wanted: dict[str, list[tuple[str, str]]] = {}
    for query in queries:
        for gold in query.gold:
            wanted.setdefault(gold.path, []).append((query.query_id, gold.substring))
    found = []
    with kb.session() as session:
        for path, passages in wanted.items():
            rows = session.connection().execute(
                select(col(Chunk.text))
                .join(Document, col(Document.id) == col(Chunk.document_id))
                .where(col(Document.path) == path)
            )
            texts = [_plain(text) for text in rows.scalars()]
            why = "no passage has these words" if texts else "not in the corpus"
            found += [
                {"id": query_id, "path": path, "why": why}
                for query_id, substring in passages
                if not any(substring in text for text in texts)
            ]
    return found


def run_benchmark(
    kb: KnowledgeBase,
    queries: Sequence[BenchmarkQuery],
    *,
    use_target: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> list[Answer]:
    """Asks a knowledge base every query, with the query's target or without."""

    def ask(query: BenchmarkQuery) -> Sequence[Found]:
        return kb.query(query.text, target=query.target if use_target else None, k=ASKED).hits

    return run_retriever(ask, queries, progress=progress)


def run_retriever(
    ask: Callable[[BenchmarkQuery], Sequence[Found]],
    queries: Sequence[BenchmarkQuery],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[Answer]:
    """Asks whatever returns passages, best first, every query; the first is asked once more before, so that
    nothing is loaded within a time.
    """
    ask(queries[0])
    answers = []
    for number, query in enumerate(queries, start=1):
        started = time.perf_counter()
        found = ask(query)
        elapsed_ms = 1e3 * (time.perf_counter() - started)
        answers.append(_answer(query, found, elapsed_ms))
        if progress is not None:
            progress(number, len(queries))
    return answers


def _answer(query: BenchmarkQuery, found: Sequence[Found], elapsed_ms: float) -> Answer:
    characters = 0
    for rank, passage in enumerate(found, start=1):
        characters += len(passage.text)
        text = _plain(passage.text)
        if any(gold.path == passage.path and gold.substring in text for gold in query.gold):
            return Answer(query, rank, characters, elapsed_ms)
    return Answer(query, None, None, elapsed_ms)


def metrics(answers: Sequence[Answer]) -> dict[str, Any]:
    """Shares of queries, reciprocal ranks and times; the same per kind of query under `kinds`.

    recall@k: answered within the first k hits. nDCG@10: 1 / log2(rank + 1) of the first hit that answers
    (Järvelin and Kekäläinen 2002, with one relevant passage). MRR: 1 / rank, within the first ten.
    hit@8000: answered within the first 8,000 characters returned.
    """
    kinds = sorted({answer.query.kind for answer in answers} - {""})
    return {
        **_figures(answers),
        "p50_ms": round(_percentile([a.elapsed_ms for a in answers], 0.5), 2),
        "p95_ms": round(_percentile([a.elapsed_ms for a in answers], 0.95), 2),
        "kinds": {kind: _figures([a for a in answers if a.query.kind == kind]) for kind in kinds},
    }


def _figures(answers: Sequence[Answer]) -> dict[str, Any]:
    ranks = [a.rank if a.rank is not None and a.rank <= DEPTH else math.inf for a in answers]
    within = [a.characters is not None and a.characters <= CONTEXT_CHARACTERS for a in answers]
    return {
        "queries": len(answers),
        "recall@5": _share([rank <= 5 for rank in ranks]),
        "recall@10": _share([rank <= 10 for rank in ranks]),
        "ndcg@10": _share([1 / math.log2(rank + 1) for rank in ranks]),
        "mrr": _share([1 / rank for rank in ranks]),
        "hit@8000": _share(within),
    }


def _share(values: Sequence[float]) -> float:
    return round(statistics.fmean(values), 4)


def _percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _plain(text: str) -> str:
    return " ".join(text.split())
