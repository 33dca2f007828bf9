"""Chroma holds vectors only where it is asked for them."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb import KnowledgeBase, Settings
from kb.errors import IndexUnavailable
from kb.locks import file_lock, home_lock
from kb.upkeep.check import check
from kb.upkeep.gc import collect_garbage

Store = Callable[..., None]
TWO = "about tiling\n\nabout loads"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """From the fourth passage on there is an index, from the seventh on it is asked."""
    return Settings(home=tmp_path / "home", lock_timeout_s=5.0, exact_passages=6)


def manifest(settings: Settings) -> dict[str, Any] | None:
    file = settings.home / "chroma" / "manifest.json"
    return json.loads(file.read_text()) if file.exists() else None


def searched_by(kb: KnowledgeBase) -> set[str]:
    return {hit.why["vectors"] for hit in kb.query("tiling loads").hits if hit.why["vectors"]}


def test_a_small_store_has_no_index_and_a_grown_one_has_it_before_it_is_asked(
    kb: KnowledgeBase, settings: Settings, store: Store
) -> None:
    store(kb, "a.md", TWO)
    assert manifest(settings) is None
    assert check(kb).to_json() | {"chunks": 0} == {
        "ok": True, "documents": 1, "chunks": 0, "passages": 2, "vectors": 2, "problems": [],
        "problem_count": 0,
    }  # fmt: skip
    store(kb, "b.md", TWO, scope="nvidia")
    assert sorted((manifest(settings) or {})["collections"]) == ["document@generic", "document@nvidia"]
    assert searched_by(kb) == {"exact"}
    store(kb, "c.md", TWO)
    store(kb, "d.md", TWO, scope="nvidia")
    assert searched_by(kb) == {"chroma"}
    assert check(kb).problems == []


def test_an_index_that_is_not_asked_any_more_is_tidied_up(
    kb: KnowledgeBase, settings: Settings, embedder: Any, store: Store
) -> None:
    for name in "abcd":
        store(kb, f"{name}.md", TWO)
    larger = settings.model_copy(update={"exact_passages": 100})
    with KnowledgeBase.open(larger, embedder=embedder) as grown:
        store(grown, "e.md", TWO)
        assert (check(grown).problems, grown.notices) == ([], [])
        assert searched_by(grown) == {"exact"}
    with KnowledgeBase.open(settings, embedder=embedder) as again:
        assert [("does not hold" in n) for n in again.notices] == [True], "it was not kept up"
        assert searched_by(again) == {"chroma"}
    with KnowledgeBase.open(larger, embedder=embedder) as grown:
        assert collect_garbage(grown).folders == 1
        assert manifest(settings) is None
        assert check(grown).problems == []


def test_a_store_that_shrank_and_grew_has_what_is_stored(
    kb: KnowledgeBase, settings: Settings, store: Store
) -> None:
    for name in "abcd":
        store(kb, f"{name}.md", TWO)
    for name in "abc":
        store(kb, f"{name}.md", "tiling alone")
        store(kb, f"{name}.md", "")
    for name in "abc":
        store(kb, f"{name}.md", f"{TWO} again")
    assert check(kb).problems == []


def test_what_is_gone_fails_loudly_though_exact_search_could_answer(
    kb: KnowledgeBase, settings: Settings, embedder: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import chromadb

    for name in "abcd":
        store(kb, f"{name}.md", TWO)
    kb.close()
    shutil.rmtree(settings.home / "chroma")
    monkeypatch.setattr(chromadb, "PersistentClient", None)
    with (
        pytest.raises(IndexUnavailable),
        KnowledgeBase.open(settings, embedder=embedder, repair=False) as opened,
    ):
        opened.query("tiling")


@pytest.mark.parametrize("damage", ["x'00'", "zeroblob(256)"])
def test_damaged_vectors_of_a_store_without_an_index_are_found(
    kb: KnowledgeBase, store: Store, damage: str
) -> None:
    store(kb, "a.md", TWO)
    with kb.session() as session:
        session.connection().exec_driver_sql(f"UPDATE embedding SET vector = {damage} WHERE rowid = 1")
        session.commit()
    assert {p["what"] for p in check(kb).problems} == {"vectors"}
    with kb.session() as session:
        session.connection().exec_driver_sql("DELETE FROM embedding WHERE rowid = 1")
        session.commit()
    assert [p["detail"].endswith("has no vector") for p in check(kb).problems] == [True]


def test_nobody_who_asks_waits_for_who_writes(
    kb: KnowledgeBase, settings: Settings, embedder: Any, store: Store
) -> None:
    store(kb, "a.md", f"{TWO}\n\nabout banks\n\nabout spills")
    impatient = settings.model_copy(update={"lock_timeout_s": 0.2})
    with (
        home_lock(settings.home, timeout_s=1),
        file_lock(settings.home / "chroma.lock", timeout_s=1, what="writing"),
        KnowledgeBase.open(impatient, embedder=embedder) as reader,
    ):
        assert reader.query("tiling").hits
        assert reader.notices == []


def test_opening_beside_a_writer_rebuilds_nothing(
    kb: KnowledgeBase, settings: Settings, embedder: Any, store: Store
) -> None:
    store(kb, "a.md", TWO)
    done = threading.Event()
    notices: list[str] = []

    def write() -> None:
        for i in range(40):
            store(kb, "b.md", "\n\n".join(f"text {j}" for j in range(i % 3 + 1)))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        with KnowledgeBase.open(settings, embedder=embedder) as reader:
            notices += reader.notices
    writer.join()
    assert notices == []


def test_an_index_of_another_version_is_not_called_damaged(
    settings: Settings, embedder: Any, store: Store
) -> None:
    always = settings.model_copy(update={"exact_passages": 0})
    with KnowledgeBase.open(always, embedder=embedder) as kb:
        store(kb, "a.md", TWO)
    file = settings.home / "chroma" / "manifest.json"
    known = json.loads(file.read_text())
    assert "chromadb" in known["writer"]
    for left, said in (({}, "was damaged or changed"), ({"writer": ""}, "was made by another version")):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"files": {}} | left))
        with KnowledgeBase.open(always, embedder=embedder) as kb:
            assert [said in notice for notice in kb.notices] == [True]
            assert kb.query("tiling").hits


def test_a_lexical_index_of_another_version_is_not_called_incomplete(
    kb: KnowledgeBase, settings: Settings, embedder: Any, store: Store
) -> None:
    from kb.lexical_index import table_of

    store(kb, "a.md", TWO)
    view = f"{table_of('document@generic')}_chunks"
    with kb.session() as session:
        connection = session.connection()
        (statement,) = connection.exec_driver_sql(
            f"SELECT sql FROM sqlite_master WHERE name = '{view}'"
        ).scalars()
        connection.exec_driver_sql(f"DROP VIEW {view}")
        connection.exec_driver_sql(statement.replace("SELECT pk", "SELECT  pk"))
        session.commit()
    with KnowledgeBase.open(settings, embedder=embedder) as again:
        assert ["was made by another version" in notice for notice in again.notices] == [True]
        assert again.query("tiling").hits
