from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest

from ingest import ingest_library
from ingest.report import Progress
from kb import KnowledgeBase, Settings
from kb.library_index import LIBRARY, generate
from kb.locks import home_lock


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "library"
    (root / "guidance").mkdir(parents=True)
    (root / "guidance" / "a.md").write_text(
        "---\ntitle: A\nkind: guidance\nscope: cpu\n---\n# A\n\nalpha words\n"
    )
    (root / "index.md").write_text("# Index\n\nalpha\n")
    monkeypatch.setattr(KnowledgeBase, "library_path", lambda _: root)
    return root


def test_second_call_is_cheap_and_a_change_is_seen(kb: KnowledgeBase, library: Path) -> None:
    assert ingest_library(kb).added == 1
    started = time.perf_counter()
    assert ingest_library(kb).to_json()["unchanged"] == 0
    assert time.perf_counter() - started < 0.1
    (library / "guidance" / "a.md").write_text(
        "---\ntitle: A\nkind: guidance\nscope: cpu\n---\n# A\n\nbeta\n"
    )
    assert ingest_library(kb).updated == 1
    assert "beta" in kb.query("beta", kinds=["guidance"]).hits[0].text


def test_nobody_waits_for_other_documents_once_another_process_has_read_the_library(
    kb: KnowledgeBase, settings: Settings, library: Path, embedder: Any
) -> None:
    with (
        contextlib.ExitStack() as busy,
        KnowledgeBase.open(settings.model_copy(update={"lock_timeout_s": 2.0}), embedder=embedder) as other,
    ):
        busy.enter_context(home_lock(settings.home, timeout_s=1))

        def read_and_go_on(_: Progress) -> None:
            busy.close()
            ingest_library(kb)
            busy.enter_context(home_lock(settings.home, timeout_s=1))  # other documents, for long

        assert ingest_library(other, progress=read_and_go_on).added == 0
        assert [h.path for h in other.query("alpha").hits] == ["guidance/a.md"]


def test_index_is_for_people_only(kb: KnowledgeBase, library: Path) -> None:
    ingest_library(kb)
    assert [h.path for h in kb.query("alpha", k=10).hits] == ["guidance/a.md"]


def test_library_that_moved_is_the_same_source(
    kb: KnowledgeBase, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_library(kb)
    chunk = kb.query("alpha").hits[0].chunk_id
    elsewhere = tmp_path / "elsewhere"
    library.rename(elsewhere)
    monkeypatch.setattr(KnowledgeBase, "library_path", lambda _: elsewhere)
    ingest_library(kb)
    assert [h.chunk_id for h in kb.query("alpha").hits] == [chunk]


def test_curated_library_is_ingested_without_failures(kb: KnowledgeBase) -> None:
    report = ingest_library(kb)
    assert report.failed == []
    assert report.added > 0
    advice: list[Any] = [
        h.meta.get("advice") for h in kb.query("memory bound kernel", target="cpu", k=20).hits
    ]
    assert any(advice)


def test_committed_index_is_up_to_date() -> None:
    index = LIBRARY / "index.md"
    assert index.is_file(), "run `python -m kb.library_index`"
    assert index.read_text(encoding="utf-8") == generate(), "run `python -m kb.library_index`"
