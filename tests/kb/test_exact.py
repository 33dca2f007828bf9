from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from kb import KnowledgeBase, Settings
from kb.errors import IndexUnavailable

Store = Callable[..., None]


def fill(kb: KnowledgeBase, store: Store, documents: int = 12) -> None:
    for i in range(documents):
        store(kb, f"{i}.md", f"tiling number {i}\n\nvector loads {i * 7}", scope=("generic", "nvidia")[i % 2])


def nearest(kb: KnowledgeBase, limit: int, query: str = "tiling 3") -> tuple[str, list[tuple[str, float]]]:
    return kb.nearest_passages(query, ["document@generic", "document@nvidia"], limit)


@pytest.mark.parametrize("limit", [1, 5, 24, 100])
def test_finds_what_chroma_finds(settings: Settings, embedder: Any, store: Store, limit: int) -> None:
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        fill(kb, store)
        by, exact = nearest(kb, limit)
    assert by == "exact"
    with KnowledgeBase.open(settings.model_copy(update={"exact_passages": 23}), embedder=embedder) as kb:
        by, approximate = nearest(kb, limit)
    assert by == "chroma"
    assert len(exact) == min(limit, 24)
    assert [s for _, s in exact] == pytest.approx([s for _, s in approximate], abs=1e-5)


def test_a_hit_says_who_searched(kb: KnowledgeBase, store: Store) -> None:
    fill(kb, store)
    assert {h.why["vectors"] for h in kb.query("tiling").hits if h.why["similarity"]} == {"exact"}


def test_a_small_scope_needs_no_chroma(settings: Settings, embedder: Any, store: Store) -> None:
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        fill(kb, store)
    code = (
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from conftest import HashEmbedder\nfrom kb import KnowledgeBase, Settings\n"
        f"with KnowledgeBase.open(Settings(home={str(settings.home)!r}), embedder=HashEmbedder()) as kb:\n"
        "    assert kb.query('tiling').hits\n"
        "print(*[m for m in ('torch', 'chromadb', 'sentence_transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_large_scope_does_not_fall_back_when_chroma_is_gone(
    settings: Settings, embedder: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import chromadb

    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        fill(kb, store)
    shutil.rmtree(settings.home / "chroma")
    monkeypatch.setattr(chromadb, "PersistentClient", None)
    large = settings.model_copy(update={"exact_passages": 1})
    with pytest.raises(IndexUnavailable), KnowledgeBase.open(large, embedder=embedder) as kb:
        kb.query("tiling")
    with pytest.raises(IndexUnavailable), KnowledgeBase.open(large, embedder=embedder, repair=False) as kb:
        kb.query("tiling")


def test_changes_are_seen_at_once(kb: KnowledgeBase, store: Store) -> None:
    fill(kb, store)
    assert nearest(kb, 100)[1]
    store(kb, "new.md", "tiling 3")
    store(kb, "0.md", "something else", scope="nvidia")
    with KnowledgeBase.open(kb.settings, embedder=kb.embedder) as other:
        assert nearest(kb, 100) == nearest(other, 100)
    assert len(nearest(kb, 100)[1]) == 24  # two passages left with 0.md, two came


def test_another_model_and_lost_vectors_are_completed_with_a_notice(
    settings: Settings, embedder: Any, make_embedder: Any, store: Store
) -> None:
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        fill(kb, store)
        expected = nearest(kb, 100)
        with kb.session() as session:
            session.connection().execute(text("DELETE FROM embedding WHERE rowid % 2"))
            session.commit()
    with KnowledgeBase.open(settings, embedder=embedder, repair=False) as kb:
        assert nearest(kb, 100) == expected
        assert ["being embedded" in n for n in kb.notices] == [True]
    other = make_embedder("another", 32)
    with KnowledgeBase.open(settings, embedder=other, repair=False) as kb:
        assert len(nearest(kb, 100)[1]) == 24


def test_damaged_vectors_are_an_error_that_says_what_to_do(kb: KnowledgeBase, store: Store) -> None:
    fill(kb, store)
    with kb.session() as session:
        session.connection().execute(text("UPDATE embedding SET vector = x'00' WHERE rowid = 3"))
        session.commit()
    with pytest.raises(IndexUnavailable) as caught:
        nearest(kb, 5)
    assert "kb check" in caught.value.hint


def test_only_so_many_vectors_are_kept(settings: Settings, embedder: Any, store: Store) -> None:
    small = settings.model_copy(update={"exact_passages": 2})
    with KnowledgeBase.open(small, embedder=embedder) as kb:
        for scope in "abcdef":
            store(kb, f"{scope}.md", f"tiling {scope}\n\nloads {scope}", scope=scope)
        for scope in "abcdef":
            assert kb.nearest_passages("tiling", [f"document@{scope}"], 5)[0] == "exact"
        assert sum(len(p.ids) for p in kb._exact._held.values()) <= 4


def test_order_is_by_similarity_then_id(kb: KnowledgeBase, store: Store) -> None:
    fill(kb, store)
    found = nearest(kb, 100)[1]
    assert found == sorted(found, key=lambda hit: (-hit[1], hit[0]))
    assert found[:7] == nearest(kb, 7)[1]


def test_threads_may_search(kb: KnowledgeBase, store: Store) -> None:
    fill(kb, store)
    expected, failures = nearest(kb, 10), []

    def work() -> None:
        try:
            for _ in range(5):
                assert nearest(kb, 10) == expected
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert np.isfinite(expected[1][0][1])
