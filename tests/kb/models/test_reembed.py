"""Another embedding model takes the place of the one that answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlmodel import select
from stored_vectors import ALL, answers, vectors_of

from kb import KnowledgeBase, Settings
from kb.documents import DocumentWriter
from kb.errors import EmbeddingFailed, IndexOutOfStep, ModelChanged
from kb.model_record import ModelRecord
from kb.reembed import reembed, too_long
from kb.tables import Document, Embedding, EmbeddingModel
from kb.upkeep.check import check
from kb.upkeep.gc import collect_garbage

Store = Callable[..., None]
Open = Callable[..., KnowledgeBase]


def test_the_old_model_answers_until_everything_has_a_vector_of_the_new_one(
    filled: None, opened: Open, models: Any
) -> None:
    with opened("new") as kb:
        assert answers(kb) == ALL
        assert kb.embedder is models["old"]
        assert models["new"].embedded == []
        assert kb.notices == ["0 of 4 passages are embedded with new; old answers until all are"]
        assert kb.stats()["embedding"]["next"] == {
            "model": "new", "name": "new", "embedded": 0, "passages": 4, "running": False, "error": "",
        }  # fmt: skip
        report = reembed(kb)
        assert (report.switched, report.embedded, report.passages) == (True, 4, 4)
        assert kb.embedder is models["new"]
        assert answers(kb) == ALL
        assert len(models["new"].embedded) == 5, "four passages and one question"
    with opened("new") as kb:
        assert answers(kb) == ALL
        assert kb.notices == []
        assert kb.stats()["embedding"] == {"model": "new", "runtime": "test", "next": None}
        assert check(kb).problems == []


def test_a_process_that_is_open_all_the_while_changes_over_with_the_others(
    filled: None, opened: Open, models: Any
) -> None:
    with opened("old") as reader, opened("new") as kb:
        assert answers(reader) == ALL
        reembed(kb)
        assert answers(reader) == ALL
        assert reader.embedder is models["new"]
        assert reader.notices == ["4 of 4 passages are embedded with old; new answers until all are"]
        assert kb.notices[1:] == [], "nobody rebuilds the index for the other"


def test_documents_stored_meanwhile_are_found_before_and_after(
    filled: None, opened: Open, store: Store, models: Any
) -> None:
    real = models["new"].embed
    with opened("new") as writer, opened("new") as kb:

        def embed(texts: list[str]) -> Any:
            if len(models["new"].embedded) == 0:
                store(writer, "late.md", "a late paragraph about tiling")
                assert "late.md" in answers(writer)
            return real(texts)

        models["new"].embed = embed
        assert reembed(kb).passages == 5
        del models["new"].embed
        assert answers(kb) == answers(writer) == ALL | {"late.md"}
        store(writer, "later.md", "a later paragraph")
        assert "later.md" in answers(kb)
        assert check(kb).problems == []
        assert not [n for n in kb.notices + writer.notices if "rebuil" in n]


def test_a_failure_is_named_until_it_goes_on(filled: None, opened: Open, models: Any) -> None:
    def embed(texts: list[str]) -> Any:
        raise EmbeddingFailed("the endpoint is gone")

    with opened("new") as kb:
        models["new"].embed = embed
        with pytest.raises(EmbeddingFailed, match="gone"):
            reembed(kb)
        assert kb.stats()["embedding"]["next"]["error"] == "the endpoint is gone"
        assert answers(kb) == ALL
    with opened("new") as kb:
        answers(kb)
        assert "it stopped: the endpoint is gone" in kb.notices[0]
        del models["new"].embed
        assert reembed(kb).switched


def test_the_setting_is_taken_back(filled: None, opened: Open, models: Any) -> None:
    with opened("new") as kb:
        real = models["new"].embed

        def embed(texts: list[str]) -> Any:
            with opened("old") as other:
                answers(other)
                assert other.notices == []
            return real(texts)

        models["new"].embed = embed
        with pytest.raises(ModelChanged, match="another embedding model"):
            reembed(kb)
        del models["new"].embed
    with opened("old") as kb:
        assert answers(kb) == ALL
        assert kb.stats()["embedding"]["next"] is None
        assert vectors_of(kb) == {"old": 4, "new": 4}, "they wait for the next change of mind"


def test_switching_back_embeds_nothing(filled: None, opened: Open, models: Any) -> None:
    with opened("new") as kb:
        reembed(kb)
    models["old"].embedded.clear()
    with opened("old") as kb:
        assert reembed(kb).embedded == 0
        assert models["old"].embedded == []
        assert answers(kb) == ALL
        assert not reembed(kb).switched


def test_vectors_of_another_model_are_never_written(
    filled: None, opened: Open, store: Store, monkeypatch: pytest.MonkeyPatch, models: Any
) -> None:
    with opened("old") as writer:
        real = models["old"].embed

        def embed(texts: list[str]) -> Any:
            vectors = real(texts)
            with opened("new") as kb:
                reembed(kb)
            return vectors

        models["old"].embed = embed
        with pytest.raises(ModelChanged, match="by now"):
            store(writer, "late.md", "late")
        del models["old"].embed
        store(writer, "late.md", "late")
        assert check(writer).problems == []


@pytest.mark.parametrize("settings", [0], indirect=True, ids=["chroma"])
def test_killed_between_the_change_of_the_model_and_of_the_index(
    filled: None, opened: Open, models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened("new") as kb, monkeypatch.context() as patch:
        patch.setattr(type(kb.vectors), "adopt", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            reembed(kb)
    with opened("new") as kb:
        assert answers(kb) == ALL
        assert kb.notices == [], "what was prepared is taken"
        assert check(kb).problems == []


def test_an_emptied_store_opens_after_a_change_of_the_model(filled: None, opened: Open) -> None:
    with opened("new") as kb:
        assert reembed(kb).switched
        with kb.session() as session:
            documents = list(session.exec(select(Document.id)).all())
        DocumentWriter(kb).remove([i for i in documents if i is not None])
    with opened("old") as kb:
        assert kb.query("tiling").hits == []
        assert kb.embedder.model_id == "old"
    with opened("old") as kb:
        assert kb.serving.model_id == "old"


def test_garbage_is_what_no_model_that_serves_or_will_has_made(
    filled: None, opened: Open, models: Any, settings: Settings
) -> None:
    with opened("new") as kb:
        answers(kb)
        with kb.session() as session:
            for row in session.exec(select(Embedding)).all()[:2]:
                session.add(Embedding(text_hash=row.text_hash, model="new", vector=b"\0" * 128))
            session.commit()
        collect_garbage(kb)
        assert vectors_of(kb) == {"old": 4, "new": 2}
        (settings.home / "chroma-next").mkdir(exist_ok=True)
        reembed(kb)
        assert vectors_of(kb) == {"old": 4, "new": 4}
        (settings.home / "chroma-next" / "leftover").mkdir()
        collect_garbage(kb)
        assert vectors_of(kb) == {"new": 4}
        assert not (settings.home / "chroma-next").exists()


def test_passages_that_the_new_model_does_not_read_to_the_end_are_found(
    opened: Open, store: Store, models: Any
) -> None:
    with opened("old") as kb:
        store(kb, "long.md", "word " * 50)
        store(kb, "short.md", "word")
    models["new"].window = 20
    with opened("new") as kb:
        reembed(kb)
        assert too_long(kb, kb.embedder) == {"long.md": 1}
        assert [p["what"] for p in check(kb).problems] == ["passage"]


def test_a_change_over_while_a_process_decides_who_answers_is_noticed(
    filled: None, opened: Open, models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ModelRecord.next
    finished: list[str] = []

    def finish_first(record: ModelRecord) -> EmbeddingModel | None:
        if not finished:  # between seeing that the old model serves and asking how far the next one is
            finished.append("once")
            with opened("new") as other:
                reembed(other)
        return real(record)

    monkeypatch.setattr(ModelRecord, "next", finish_first)
    with opened("new") as kb:
        assert answers(kb) == ALL
        assert kb.embedder is models["new"]
        assert kb.notices == []


def test_an_index_that_does_not_come_out_right_is_an_error(
    filled: None, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened("new") as kb:
        monkeypatch.setattr("kb.vectors.VectorIndex.check", lambda *_: "was damaged")
        with pytest.raises(IndexOutOfStep, match="was damaged after all was embedded"):
            reembed(kb)
        assert "was damaged" in kb.stats()["embedding"]["next"]["error"]
