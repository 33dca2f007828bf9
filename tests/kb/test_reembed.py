"""Another embedding model takes the place of the one that answers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlmodel import select

from kb import KnowledgeBase, Settings
from kb.documents import DocumentWriter
from kb.errors import EmbeddingFailed, LocalOnly, ModelChanged, StoreLocked
from kb.model_record import ModelRecord
from kb.reembed import reembed, running, too_long
from kb.serving import open_embedder
from kb.tables import Document, Embedding, EmbeddingModel, Source
from kb.upkeep.check import check
from kb.upkeep.gc import collect_garbage

Store = Callable[..., None]
Open = Callable[..., KnowledgeBase]
TEXTS = [f"paragraph {i} about {word}" for i, word in enumerate(("tiling", "loads", "spills", "banks"))]


@pytest.fixture(params=[0, 50_000], ids=["chroma", "exact"])
def settings(tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    return Settings(home=tmp_path / "home", lock_timeout_s=5.0, exact_passages=request.param)


@pytest.fixture
def models(make_embedder: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `embedding_model` may name. What is taken out cannot be loaded any more."""
    known = {"old": make_embedder("old"), "new": make_embedder("new", dimension=32)}

    def load(settings: Settings, name: str | None = None, *_: str, **__: str) -> Any:
        name = settings.embedding_model if name is None else name
        if name not in known:
            raise EmbeddingFailed(f"no model {name!r}")
        return known[name]

    monkeypatch.setattr("kb.serving.open_embedder", load)
    return known


@pytest.fixture
def opened(settings: Settings, models: Any) -> Open:
    def of(name: str, **options: Any) -> KnowledgeBase:
        return KnowledgeBase.open(settings.model_copy(update={"embedding_model": name}), **options)

    return of


@pytest.fixture
def filled(opened: Open, store: Store) -> None:
    with opened("old") as kb:
        for i, text in enumerate(TEXTS):
            store(kb, f"{i}.md", text, scope="generic" if i % 2 else "nvidia")


def answers(kb: KnowledgeBase) -> set[str]:
    return {h.path for h in kb.query("paragraph about tiling", k=20).hits if h.why["similarity"] is not None}


ALL = {f"{i}.md" for i in range(len(TEXTS))}


def vectors_of(kb: KnowledgeBase) -> dict[str, int]:
    with kb.session() as session:
        models = [row.model for row in session.exec(select(Embedding)).all()]
    return {model: models.count(model) for model in models}


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


# --- processes, with models that are read from folders ---


@pytest.fixture
def bundled(settings: Settings, store: Store) -> Settings:
    """A home that the bundled model serves."""
    with KnowledgeBase.open(settings) as kb:
        for i in range(30):
            store(kb, f"{i}.md", f"passage number {i} about tiling and {'loads ' * i}")
    return settings


REEMBED = """
import sys, time
from kb import KnowledgeBase, Settings
from kb import reembed as module
module._BATCH = 4
def slow(done, total):
    print(done, flush=True)
    if done >= 12:
        time.sleep(float(sys.argv[3]))
settings = Settings(home=sys.argv[1], embedding_model=sys.argv[2], exact_passages=int(sys.argv[4]))
with KnowledgeBase.open(settings) as kb:
    print(module.reembed(kb, progress=slow).to_json(), flush=True)
"""


def start(settings: Settings, model: Path, pause_s: float) -> subprocess.Popen[str]:
    arguments = [str(settings.home), str(model), str(pause_s), str(settings.exact_passages)]
    return subprocess.Popen([sys.executable, "-c", REEMBED, *arguments], stdout=subprocess.PIPE, text=True)


def test_a_killed_process_is_taken_up_where_it_was(bundled: Settings, tiny_model: Path) -> None:
    process = start(bundled, tiny_model, 600)
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "12":
            break
    assert running(bundled.home)
    with KnowledgeBase.open(bundled.model_copy(update={"embedding_model": str(tiny_model)})) as kb:
        assert len(kb.query("tiling", k=50).hits) == 30, "the bundled model answers meanwhile"
        assert kb.embedder.embed(["x"]).shape == (1, 384)
        with pytest.raises(StoreLocked, match="another model"):
            reembed(kb)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not running(bundled.home)
        done = vectors_of(kb)[open_embedder(kb.settings).model_id]
        assert done == 12
        assert reembed(kb).embedded == 18
        assert kb.embedder.embed(["x"]).shape == (1, 32)
        assert len(kb.query("tiling", k=50).hits) == 30
        assert check(kb).problems == []


@pytest.mark.full  # several seconds
def test_questions_are_answered_all_the_while(bundled: Settings, tiny_model: Path) -> None:
    with KnowledgeBase.open(bundled) as kb:
        process = start(bundled, tiny_model, 0.2)
        asked = 0
        while process.poll() is None:
            hits = kb.query("tiling", k=50).hits
            assert sum(h.why["similarity"] is not None for h in hits) == 30
            asked += 1
        assert process.returncode == 0
        assert asked > 3
        assert kb.query("tiling").hits
        assert not [n for n in kb.notices if "rebuil" in n]


@pytest.mark.full
def test_a_query_starts_what_is_needed_and_a_later_one_has_the_new_model(
    tmp_path: Path, tiny_model: Path
) -> None:
    environment = {**os.environ, "KERNELEVOLVE_HOME": str(tmp_path / "home")}

    def run(*arguments: str) -> Any:
        code = f"import sys; from cli.main import run; sys.exit(run({list(arguments)!r}))"
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])

    run("init", "--json")
    environment["KERNELEVOLVE_EMBEDDING_MODEL"] = str(tiny_model)
    first = run("query", "tiling", "--json")
    assert "the bundled model answers until all are" in first["notes"][0]
    deadline = time.monotonic() + 120
    while (found := run("kb", "stats", "--json")["embedding"])["next"] is not None:
        assert time.monotonic() < deadline, (tmp_path / "home" / "reembed.log").read_text()
        time.sleep(0.5)
    environment["KERNELEVOLVE_LOCK_TIMEOUT_S"] = "60"
    second = run("query", "tiling", "--json")
    assert "notes" not in second or not second["notes"]
    assert found["model"] == open_embedder(Settings(embedding_model=str(tiny_model))).model_id
    log = (tmp_path / "home" / "reembed.log").read_text()
    assert json.loads(log.splitlines()[-1])["switched"]
    shutil.rmtree(tmp_path / "home")


@pytest.mark.parametrize("settings", [50_000], indirect=True)
def test_an_adapted_model_takes_over_like_any_other_and_is_taken_back(bundled: Settings) -> None:
    from kb.adaptation.adapt import forget
    from kb.adaptation.lowrank import write_factors

    with KnowledgeBase.open(bundled) as kb:
        before = kb.embedder.model_id
        weight = "encoder.layer.0.attention.self.query.weight"
        random = np.random.default_rng(0)
        factors = {weight: tuple(random.standard_normal(s).astype(np.float32) for s in ((4, 384), (384, 4)))}
        (kb.home / "adapters").mkdir()
        write_factors(kb.home / "adapters" / f"{before}.safetensors", factors, {})
    with KnowledgeBase.open(bundled) as kb:
        assert kb.embedder.model_id == before
        assert kb.serving.next is not None
        assert "with the bundled model as it is now; the bundled model as it was answers" in kb.notices[0]
        assert kb.query("tiling").hits
        assert reembed(kb).switched
        adapted = kb.embedder.model_id
        assert adapted != before
        assert forget(kb) is not None
        collect_garbage(kb)  # not what serves
    with KnowledgeBase.open(bundled) as kb:
        assert len([h for h in kb.query("tiling", k=50).hits if h.why["similarity"]]) == 30
        assert kb.embedder.model_id == adapted, "it answers until all is embedded anew"
        assert reembed(kb).switched
    with KnowledgeBase.open(bundled) as kb:
        assert kb.embedder.model_id == before
        assert collect_garbage(kb).adapters == 1
        assert not list(kb.home.glob("adapters/*"))


@pytest.mark.parametrize("settings", [50_000], indirect=True)
def test_a_model_that_is_adapted_once_more_answers_as_it_was(bundled: Settings) -> None:
    from kb.adaptation.lowrank import set_aside, write_factors

    weight = "encoder.layer.0.attention.self.query.weight"
    with KnowledgeBase.open(bundled) as kb:
        file = kb.home / "adapters" / f"{kb.embedder.model_id}.safetensors"
    served = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        factors = {weight: tuple(random.standard_normal(s).astype(np.float32) for s in ((4, 384), (384, 4)))}
        set_aside(file)
        write_factors(file, factors, {})
        with KnowledgeBase.open(bundled) as kb:
            served.append(kb.embedder.model_id)
            assert kb.serving.next is not None
            if seed < 2:
                assert reembed(kb).switched
    assert len(set(served)) == 3
    with KnowledgeBase.open(bundled) as kb:
        assert collect_garbage(kb).adapters == 1  # the first of the two that were set aside
        assert kb.embedder.model_id == served[-1]


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
