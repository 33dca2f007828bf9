"""What counts as an answer, and what the figures say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from ingest import ingest_paths
from kb import KnowledgeBase, Settings
from kb.benchmark import (
    Answer,
    BenchmarkQuery,
    Gold,
    metrics,
    read_benchmark,
    run_benchmark,
    run_retriever,
    unanswerable,
)
from kb.errors import BenchmarkInvalid


def answer(rank: int | None, characters: int | None = None, kind: str = "") -> Answer:
    query = BenchmarkQuery("q", "words", (Gold("a.md", "x"),), None, kind)
    return Answer(query, rank, characters, 10.0 * (rank or 1))


def test_figures() -> None:
    found = metrics([answer(1, 900, "api"), answer(7, 8000, "api"), answer(12, 8001), answer(None)])
    assert found["recall@5"] == 0.25
    assert found["recall@10"] == 0.5
    assert found["ndcg@10"] == pytest.approx((1 + 1 / math.log2(8)) / 4, abs=1e-4)
    assert found["mrr"] == pytest.approx((1 + 1 / 7) / 4, abs=1e-4)
    assert found["hit@8000"] == 0.5
    assert (found["p50_ms"], found["p95_ms"]) == (10.0, 120.0)
    assert set(found["kinds"]) == {"api"}
    assert found["kinds"]["api"]["queries"] == 2


def test_queries_are_answered_by_any_gold_passage(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    (corpus / "sub").mkdir(parents=True)
    (corpus / "sub" / "a.md").write_text("# Banks\n\nScratchpad memory has\nthirty-two   banks.\n")
    (corpus / "b.md").write_text("# Rows\n\nScratchpad memory has thirty-two banks.\n")
    rows = [
        {"query": "scratchpad banks", "gold": [{"path": "sub/a.md", "substring": "has thirty-two banks"}]},
        {
            "query": "scratchpad banks",
            "target": "elsewhere",
            "gold": [{"path": "no.md", "substring": "x"}, {"path": "b.md", "substring": "thirty-two banks"}],
        },
        {"query": "scratchpad banks", "gold": [{"path": "a.md", "substring": "thirty-two banks"}]},
    ]
    bench = tmp_path / "bench.jsonl"
    bench.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    queries = read_benchmark(bench)
    assert [q.query_id for q in queries] == ["1", "2", "3"]
    with KnowledgeBase.open(Settings(home=tmp_path / "home")) as kb:
        ingest_paths(kb, [corpus], scope="nvidia")
        with_target, without = (run_benchmark(kb, queries, use_target=use) for use in (True, False))
    assert [a.rank is not None for a in without] == [True, True, False], "the path must be the gold's"
    assert with_target[1].rank is None, "another target does not see it"
    found = without[0]
    assert found.characters is not None
    assert found.characters >= len("# Banks\n\nScratchpad memory has\nthirty-two   banks.")


def test_any_retriever_is_judged_by_the_same_rule() -> None:
    queries = [BenchmarkQuery("1", "words", (Gold("a.md", "two words"),), None, "")]
    found = [passage("b.md", "two words"), passage("a.md", "two\n  words"), passage("a.md", "two words")]
    (given,) = run_retriever(lambda _: found, queries)
    assert (given.rank, given.characters) == (2, len("two words") + len("two\n  words"))
    (missed,) = run_retriever(lambda _: found[:1], queries)
    assert (missed.rank, missed.characters) == (None, None)


def passage(path: str, text: str) -> SimpleNamespace:
    return SimpleNamespace(path=path, text=text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", '{"query": "x"}', '{"query": "x", "gold": []}', "[1]"),
        '{"query": " ", "gold": [{"path": "a", "substring": "b"}]}',
    ],
)
def test_what_is_no_benchmark(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bench.jsonl"
    path.write_text(text)
    with pytest.raises(BenchmarkInvalid):
        read_benchmark(path)


def test_answers_that_no_hit_can_be_are_named(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.md").write_text("# Banks\n\nThirty-two\n  banks.\n")
    gold = [
        BenchmarkQuery("found", "q", (Gold("a.md", "Thirty-two banks."),), None, ""),
        BenchmarkQuery("moved", "q", (Gold("b.md", "banks"), Gold("a.md", "banks")), None, ""),
        BenchmarkQuery("reworded", "q", (Gold("a.md", "thirty banks"),), None, ""),
    ]
    with KnowledgeBase.open(Settings(home=tmp_path / "home")) as kb:
        ingest_paths(kb, [tmp_path / "corpus"])
        assert unanswerable(kb, gold) == [
            {"id": "reworded", "path": "a.md", "why": "no passage has these words"},
            {"id": "moved", "path": "b.md", "why": "not in the corpus"},
        ]
