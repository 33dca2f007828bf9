"""Which embedding model answers, and what happens when the one that should does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlmodel import select
from stored_vectors import ALL, answers

from kb import KnowledgeBase
from kb.errors import EmbeddingFailed, LocalOnly
from kb.reembed import reembed
from kb.tables import EmbeddingModel, Source
from kb.upkeep.check import check

Store = Callable[..., None]
Open = Callable[..., KnowledgeBase]


def test_an_old_model_that_cannot_be_loaded_is_named_and_replaced_before_the_answer(
    filled: None, opened: Open, models: Any
) -> None:
    del models["old"]
    with opened("new") as kb:
        assert answers(kb) == ALL
        assert "old made the vectors and cannot be used (no model 'old'): 4 of 4 passages" in kb.notices[0]
        assert not reembed(kb).switched
    with opened("new") as kb:
        assert answers(kb) == ALL
        assert kb.notices == []
        assert check(kb).problems == []


def test_a_folder_that_holds_another_model_by_now_is_not_taken_for_the_old_one(
    filled: None, opened: Open, models: Any, make_embedder: Any
) -> None:
    models["old"] = make_embedder("other")
    with opened("new") as kb:
        assert answers(kb) == ALL
        assert "old is another model by now" in kb.notices[0]


def test_a_new_model_that_cannot_be_loaded_is_an_error(filled: None, opened: Open) -> None:
    with opened("mistyped") as kb, pytest.raises(EmbeddingFailed, match="mistyped"):
        kb.query("tiling")


def test_an_empty_store_takes_any_model(opened: Open, models: Any, store: Store) -> None:
    with opened("old") as kb:
        kb.query("tiling")
    with opened("new") as kb:
        store(kb, "a.md", "tiling")
        assert kb.notices == []
        with kb.session() as session:
            assert [(r.model, r.serving) for r in session.exec(select(EmbeddingModel))] == [("new", True)]


def test_a_store_from_before_models_were_on_record(filled: None, opened: Open, models: Any) -> None:
    with opened("old") as kb, kb.session() as session:
        session.connection().exec_driver_sql("DELETE FROM embedding_model")
        session.commit()
    with opened("old") as kb:
        assert answers(kb) == ALL
        assert kb.notices == []
    with opened("new") as kb:
        assert answers(kb) == ALL
        assert kb.embedder is models["old"]


def test_local_only_texts_bar_a_model_that_is_elsewhere(
    filled: None, opened: Open, models: Any, make_embedder: Any
) -> None:
    with opened("old") as kb, kb.session() as session:
        source = session.exec(select(Source)).one()
        source.visibility = "local-only"
        session.commit()
    models["new"].sends_to = "https://api.example.com/v1"
    with opened("new") as kb:
        assert answers(kb) == ALL
        assert kb.embedder is models["old"]
        assert "local-only" in kb.notices[0]
        assert kb.serving.next is None
        with pytest.raises(LocalOnly):
            reembed(kb)
    del models["old"]
    with opened("new") as kb, pytest.raises(LocalOnly):
        kb.query("tiling")
    assert models["new"].embedded == []


@pytest.fixture
def much(monkeypatch: pytest.MonkeyPatch) -> None:
    """More is stored than could be embedded before an answer."""
    monkeypatch.setattr("kb.serving._AT_ONCE", 0)


def test_words_answer_at_once_while_a_lost_model_is_replaced(
    filled: None, much: None, opened: Open, models: Any
) -> None:
    del models["old"]
    with opened("new") as kb:
        hits = kb.query("paragraph about tiling").hits
        assert hits[0].path == "0.md"
        assert all(h.why["similarity"] is None for h in hits)
        assert models["new"].embedded == []
        assert kb.notices == [
            "0 of 4 passages are embedded with new; old made the vectors and cannot be used "
            "(no model 'old'): until all are words alone find passages"
        ]
        assert kb.stats()["embedding"]["runtime"] == "none: no model 'old'"
        assert [p["what"] for p in check(kb).problems] == ["model"]
        assert kb.serving.model_id == "old", "nothing was decided for good"
        assert reembed(kb).switched
        assert answers(kb) == ALL
    with opened("new") as kb:
        assert answers(kb) == ALL
        assert kb.notices == []
        assert check(kb).problems == []


def test_a_lost_model_that_is_found_again_answers_again(
    filled: None, much: None, opened: Open, models: Any
) -> None:
    old = models.pop("old")
    with opened("new") as kb:
        assert answers(kb) == set()
    models["old"] = old
    with opened("new") as kb:
        assert answers(kb) == ALL
        assert kb.embedder is old


def test_whoever_stores_documents_has_the_next_model_serve(
    filled: None, much: None, opened: Open, models: Any, store: Store
) -> None:
    del models["old"]
    with opened("new") as kb:
        assert answers(kb) == set()
        store(kb, "late.md", "a late paragraph about tiling")
        assert answers(kb) == ALL | {"late.md"}
        assert kb.serving.model_id == "new"
        assert check(kb).problems == []


def test_an_old_model_that_fails_for_a_moment_is_not_given_up(
    filled: None, opened: Open, models: Any
) -> None:
    def embed(texts: list[str]) -> Any:
        raise EmbeddingFailed("connection refused")

    models["old"].embed = embed
    with opened("new") as kb:
        assert kb.query("paragraph about tiling").hits[0].path == "0.md"
        assert kb.query("tiling").hits
        assert [n for n in kb.notices if "connection refused" in n] == kb.notices[1:]
        assert len(kb.notices) == 2, "said once"
        assert kb.serving.model_id == "old"
        del models["old"].embed
        assert answers(kb) == ALL
    with opened("old") as kb:
        assert kb.notices == []
        models["old"].embed = embed
        with pytest.raises(EmbeddingFailed, match="refused"):  # nothing takes its place
            kb.query("tiling")
