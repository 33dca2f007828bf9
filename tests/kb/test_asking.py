"""Several questions as one, and refinement by models: a real server, a real cross-encoder, a real store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kb import KnowledgeBase, Settings
from kb.asking import Refiner, refine
from kb.errors import RefinementFailed, SettingsError
from kb.privacy import is_this_machine
from kb.records import SubQuery
from kb.tables import Source

Store = Callable[..., None]
TOPICS = ("banks", "registers", "caches", "barriers", "streams", "tiles")


def ordering(*best: str, extra: str = "") -> Callable[[str], str]:
    """A reply that ranks the passages with these words first, and is silent about the others."""

    def reply(prompt: str) -> str:
        if '"queries"' in prompt:
            return '{"queries": []}'
        ids = [number for word in best for number, text in _passages(prompt).items() if word in text]
        return f"{extra}```json\n{json.dumps({'ranking': ids})}\n```"

    return reply


def _passages(prompt: str) -> dict[int, str]:
    from chat_server import passages

    return passages(prompt)


@pytest.fixture
def filled(kb: KnowledgeBase, store: Store) -> KnowledgeBase:
    for topic in TOPICS:
        store(kb, f"{topic}.md", f"About memory and {topic}: how kernels use {topic} well.")
    return kb


@pytest.fixture
def open_with(filled: KnowledgeBase, embedder: Any) -> Iterator[Callable[..., tuple[KnowledgeBase, Refiner]]]:
    """open_with(setting=…): the filled store under other settings, and its refiner."""
    opened = []

    def reopen(**settings: Any) -> tuple[KnowledgeBase, Refiner]:
        kb = KnowledgeBase.open(filled.settings.model_copy(update=settings), embedder=embedder)
        opened.append(kb)
        assert kb.refiner is not None
        return kb, kb.refiner

    yield reopen
    for kb in opened:
        kb.close()


def names(hits: Any) -> list[str]:
    return [hit.path.removesuffix(".md") for hit in hits]


# --- several questions ---


def test_each_question_brings_its_hits_and_is_named(filled: KnowledgeBase) -> None:
    result = filled.query_many([SubQuery("barriers", "evidence"), SubQuery("streams", "action")], k=2)
    assert set(names(result.hits)) == {"barriers", "streams"}
    assert [hit.rank for hit in result.hits] == [1, 2]
    asked = {hit.path: hit.why["asked"] for hit in result.hits}
    assert {"query": "barriers", "purpose": "evidence", "rank": 1} in asked["barriers.md"]
    assert {"query": "streams", "purpose": "action", "rank": 1} in asked["streams.md"]


def test_what_several_questions_find_comes_first(filled: KnowledgeBase) -> None:
    from kb.asking import _fused
    from kb.retrieval import QueryResult

    a, b, c, *_ = filled.query("memory").hits
    first = QueryResult("x", 0.0, [replace(a, rank=1), replace(b, rank=2)])
    second = QueryResult("y", 0.0, [replace(c, rank=1), replace(b, rank=2)])
    hits = _fused([SubQuery("x"), SubQuery("y", weight=0.5)], [first, second])
    assert [hit.chunk_id for hit in hits] == [b.chunk_id, a.chunk_id, c.chunk_id]
    assert [hit.score for hit in hits] == [0.875, pytest.approx(2 / 3), pytest.approx(1 / 3)]
    assert [entry["query"] for entry in hits[0].why["asked"]] == ["x", "y"]


def test_one_question_ranks_as_alone_and_none_finds_nothing(filled: KnowledgeBase) -> None:
    alone = names(filled.query("memory banks").hits)
    assert names(filled.query_many([SubQuery("memory banks")]).hits) == alone
    assert filled.query_many([]).hits == []
    assert filled.query_many([SubQuery("  ")]).hits == []


# --- a chat model ---


def test_the_model_orders_what_was_found(open_with: Any, chat_server: Any) -> None:
    server = chat_server(ordering("tiles", "caches", extra="<think>{1: maybe}</think>\n"))
    kb, refiner = open_with(chat_model="openai:m", chat_base_url=server.url)
    before = names(kb.query("memory banks").hits)
    result = refine(kb, refiner, [SubQuery("memory banks")], k=4)
    rest = [name for name in before if name not in ("tiles", "caches")]
    assert names(result.hits) == ["tiles", "caches", *rest][:4], "what it left out follows as it was"
    assert [hit.rank for hit in result.hits] == [1, 2, 3, 4]
    assert result.hits[0].why["rerank"] == {
        "by": "openai:m", "place": 1, "before": before.index("tiles") + 1,
    }  # fmt: skip
    assert result.to_json()["refined"]["reranked_by"] == "openai:m"


@pytest.mark.parametrize("ids", ['[99, 0, -3, true, null, 2, 2, 1.0, "x"]', "[2]"])
def test_ids_that_were_not_given_are_ignored(open_with: Any, chat_server: Any, ids: str) -> None:
    server = chat_server(lambda _: f'{{"ranking": {ids}, "queries": []}}')
    kb, refiner = open_with(chat_model="openai:m", chat_base_url=server.url)
    before = names(kb.query("memory banks").hits)
    after = names(refine(kb, refiner, [SubQuery("memory banks")]).hits)
    assert after == [before[1], before[0], *before[2:]]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("I cannot do that.", "did not answer with a list"),
        ('{"queries": [], "ranking": [77]}', "none of the passages"),
        ('{"queries": "a"}', "did not answer with a list of queries"),
        (400, "rejected the request"),
        (401, "rejected the key"),
        ("", "did not answer with a list"),
    ],
)
def test_a_model_that_fails_is_named(open_with: Any, chat_server: Any, said: Any, message: str) -> None:
    kb, refiner = open_with(chat_model="openai:m", chat_base_url=chat_server(lambda _: said).url)
    with pytest.raises(RefinementFailed, match=message) as caught:
        refine(kb, refiner, [SubQuery("memory banks")])
    assert "openai:m" in str(caught.value)
    assert "--no-rerank" in caught.value.hint


def test_a_model_that_does_not_answer_in_time_is_named(
    open_with: Any, chat_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setattr("kb.chat._FIRST_WAIT_S", 0.01)
    server = chat_server(lambda _: time.sleep(0.6) or "{}")
    kb, refiner = open_with(chat_model="openai:m", chat_base_url=server.url, chat_timeout_s=0.2)
    with pytest.raises(RefinementFailed, match="did not answer in 2 attempts"):
        refine(kb, refiner, [SubQuery("memory banks")])


def test_other_words_find_more_and_the_question_is_never_dropped(open_with: Any, chat_server: Any) -> None:
    def reply(prompt: str) -> str:
        if '"queries"' in prompt:
            return json.dumps({"queries": ["streams", "STREAMS  again", 7, "", "tiles", "a", "b", "c"]})
        return json.dumps({"ranking": list(_passages(prompt))})

    kb, refiner = open_with(chat_model="openai:m", chat_base_url=chat_server(reply).url)
    result = refine(kb, refiner, [SubQuery("registers of a kernel")], k=3)
    assert result.query == "registers of a kernel"
    assert result.refined["rewritten"] == ["streams", "STREAMS again", "tiles", "a"]
    assert names(result.hits)[0] == "registers", "all other words together weigh no more than the question"
    alone = names(kb.query("registers of a kernel", k=6).hits)
    after = names(refine(kb, refiner, [SubQuery("registers of a kernel")], k=6).hits)
    assert after.index("streams") < alone.index("streams"), "two of four phrasings rank it first"
    asked = result.hits[0].why["asked"]
    assert asked[0]["query"] == "registers of a kernel"
    assert {entry["purpose"] for entry in asked[1:]} <= {"in other words"}


def test_several_questions_are_not_rewritten(open_with: Any, chat_server: Any) -> None:
    server = chat_server(ordering("tiles"))
    kb, refiner = open_with(chat_model="openai:m", chat_base_url=server.url)
    refine(kb, refiner, [SubQuery("banks"), SubQuery("tiles")])
    assert len(server.prompts) == 1
    assert '"ranking"' in server.prompts[0]


# --- privacy ---


@pytest.fixture
def secret(filled: KnowledgeBase, store: Store) -> KnowledgeBase:
    """One passage of the store is local-only, and the best hit for `memory banks secretly`."""
    store(filled, "secret.md", "Secretly, memory banks of our own chip: forbidden knowledge of banks.")
    with filled.session() as session:
        from sqlmodel import select

        from kb.tables import Document

        source = Source(key="/mine", name="mine", root="/mine", visibility="local-only")
        session.add(source)
        session.flush()
        document = session.exec(select(Document).where(Document.path == "secret.md")).one()
        document.source_id = source.id or 0
        session.add(document)
        session.commit()
    return filled


def test_a_hosted_model_never_sees_what_is_local_only(
    secret: KnowledgeBase, chat_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = chat_server(ordering("tiles"))
    settings = secret.settings.model_copy(update={"chat_model": "openai:m", "chat_base_url": server.url})
    monkeypatch.setattr("kb.chat.is_this_machine", lambda _: False)  # as if it were elsewhere
    refiner = Refiner.of(settings)
    assert refiner is not None
    before = names(secret.query("memory banks secretly").hits)
    assert before[0] == "secret"
    result = refine(secret, refiner, [SubQuery("memory banks secretly")])
    assert names(result.hits)[:2] == ["secret", "tiles"], (
        "it keeps its place, the others are ordered around it"
    )
    assert sorted(names(result.hits)) == sorted(before)
    assert not any("forbidden" in prompt for prompt in server.prompts)
    assert [hit.why["rerank"]["place"] for hit in result.hits[:2]] == [None, 1]


def test_a_model_on_this_machine_sees_everything(secret: KnowledgeBase, chat_server: Any) -> None:
    server = chat_server(ordering("tiles", "forbidden"))
    refiner = Refiner.of(
        secret.settings.model_copy(update={"chat_model": "openai:m", "chat_base_url": server.url})
    )
    assert refiner is not None
    result = refine(secret, refiner, [SubQuery("memory banks secretly")])
    assert names(result.hits)[:2] == ["tiles", "secret"]
    assert any("forbidden" in prompt for prompt in server.prompts)


def test_tracing_and_proxies_make_a_local_model_a_hosted_one(
    chat_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from langsmith.utils import get_env_var

    from kb.chat import open_model

    url = chat_server(lambda _: "").url
    assert is_this_machine(url)
    assert not open_model("openai:m", url).hosted
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    get_env_var.cache_clear()
    assert open_model("openai:m", url).hosted
    monkeypatch.delenv("LANGSMITH_TRACING")
    get_env_var.cache_clear()
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    assert not is_this_machine(url)
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    assert is_this_machine(url)


# --- a cross-encoder ---


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """cross_encoder(outputs): the folder of a tiny model with random weights."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    def make(outputs: int) -> Path:
        folder = tmp_path_factory.mktemp("cross-encoder")
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        words = {word: i for i, word in enumerate([*special, *TOPICS, "memory", "and", "about", "how"])}
        tokenizer = Tokenizer(models.WordLevel(words, "[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            pad_token="[PAD]",
            unk_token="[UNK]",
            cls_token="[CLS]",
            sep_token="[SEP]",
        ).save_pretrained(folder)
        torch.manual_seed(1)
        config = BertConfig(
            vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=16, max_position_embeddings=64, num_labels=outputs, initializer_range=1.0,
        )  # fmt: skip
        BertForSequenceClassification(config).save_pretrained(folder)
        return folder

    return make


@pytest.mark.full  # imports torch and transformers
def test_a_cross_encoder_orders_by_its_own_scores(open_with: Any, cross_encoder: Any) -> None:
    from sentence_transformers import CrossEncoder

    folder = str(cross_encoder(1))
    kb, refiner = open_with(cross_encoder=folder)
    assert refiner.rewriter is None
    found = kb.query("memory banks").hits
    scores = CrossEncoder(folder).predict([("memory banks", f"{h.section}\n{h.text}") for h in found])
    expected = [hit.chunk_id for _, hit in sorted(zip(scores, found, strict=True), key=lambda pair: -pair[0])]
    result = refine(kb, refiner, [SubQuery("memory banks")])
    assert [hit.chunk_id for hit in result.hits] == expected
    assert expected != [hit.chunk_id for hit in found]
    assert result.refined == {"reranked_by": folder}


@pytest.mark.full
def test_what_is_no_cross_encoder_is_named(open_with: Any, cross_encoder: Any, tmp_path: Path) -> None:
    kb, refiner = open_with(cross_encoder=str(tmp_path / "nothing"))
    with pytest.raises(RefinementFailed, match="cannot be loaded"):
        refine(kb, refiner, [SubQuery("memory banks")])
    kb, refiner = open_with(cross_encoder=str(cross_encoder(3)))
    with pytest.raises(RefinementFailed, match="3 outputs"):
        refine(kb, refiner, [SubQuery("memory banks")])


# --- settings ---


def test_nothing_refines_by_default(kb: KnowledgeBase) -> None:
    assert kb.refiner is None


@pytest.mark.parametrize(
    "values",
    [{"chat_model": "name"}, {"chat_model": "openai:"}, {"chat_base_url": "http://127.0.0.1:1/v1"},
     {"chat_model": "openai:m", "chat_base_url": "127.0.0.1"},
     {"chat_model": "openai:m", "chat_base_url": "http://user:key@127.0.0.1/v1"}],
)  # fmt: skip
def test_settings_that_cannot_be_meant_are_refused(tmp_path: Path, values: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        Settings(home=tmp_path, **values)  # type: ignore[arg-type]


def test_a_missing_key_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(RefinementFailed, match="openai:m cannot be used") as caught:
        Refiner.of(Settings(home=tmp_path, chat_model="openai:m"))
    assert "OPENAI_API_KEY" in caught.value.hint
