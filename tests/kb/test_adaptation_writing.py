"""Questions that a chat model writes, against a real HTTP server on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from chat_server import ChatServer, passages

from kb import KnowledgeBase
from kb.adaptation.pairs import read_questions
from kb.adaptation.writing import asked_file, write_questions
from kb.chat import ChatModel, open_model
from kb.errors import RefinementFailed
from kb.tables import Source

Store = Callable[..., None]
LONG = (
    "The accumulator holds one tile of the product until the last step of the loop over the inner dimension. "
    * 3
)


@pytest.fixture
def filled(kb: KnowledgeBase, store: Store) -> KnowledgeBase:
    for i in range(25):
        store(kb, f"d{i}.md", f"Passage {i}. {LONG}")
    store(kb, "short.md", "little")
    return kb


def answer(prompt: str) -> str:
    """Two questions about each passage, one about one that nobody gave, and some thinking before."""
    found = [{"id": i, "q": [f"what of {text.split()[2]}", "why?"]} for i, text in passages(prompt).items()]
    return 'Let me think. {"questions": 3} ' + json.dumps(
        {"questions": [*found, {"id": 99, "q": ["?"]}, "x"]}
    )


def opened(server: ChatServer) -> ChatModel:
    return open_model("openai:m", server.url, attempts=1)


def test_questions_are_written_once_and_pair_with_their_passages(
    filled: KnowledgeBase, chat_server: Callable[..., ChatServer]
) -> None:
    server = chat_server(answer)
    steps: list[tuple[int, int]] = []
    assert write_questions(filled, opened(server), 15, progress=lambda d, t: steps.append((d, t))) == 30
    assert steps == [(10, 15), (15, 15)]
    assert write_questions(filled, opened(server), 100) == 20
    assert sorted(len(passages(prompt)) for prompt in server.prompts) == [5, 10, 10]
    pairs = read_questions(filled, asked_file(filled.home), filled.embedder)
    assert len(pairs) == 50
    first = [p for p in pairs if p.question.startswith("what of")]
    assert all(f"Passage {p.question.split()[-1]}" in p.passage for p in first)
    assert write_questions(filled, opened(server), 100) == 0


def test_what_was_written_before_a_failure_stays(
    filled: KnowledgeBase, chat_server: Callable[..., ChatServer]
) -> None:
    asked: list[str] = []

    def once(prompt: str) -> str:
        asked.append(prompt)
        return answer(prompt) if len(asked) == 1 else "I would rather not."

    server = chat_server(once)
    with pytest.raises(RefinementFailed, match="questions"):
        write_questions(filled, opened(server), 20)
    assert len(read_questions(filled, asked_file(filled.home), filled.embedder)) == 20
    with asked_file(filled.home).open("a") as file:
        file.write('{"source": "/test", "at": "d3.md:1", "q": ["half of a li')
    asked.clear()
    assert write_questions(filled, opened(server), 10) == 20
    assert len(read_questions(filled, asked_file(filled.home), filled.embedder)) == 40


def test_local_only_passages_are_not_shown_to_a_hosted_model(
    filled: KnowledgeBase, chat_server: Callable[..., ChatServer]
) -> None:
    with filled.session() as session:
        source = session.get(Source, 1)
        assert source is not None
        source.visibility = "local-only"
        session.add(source)
        session.commit()
    server = chat_server(answer)
    model = opened(server)
    assert not model.hosted
    model.hosted = True
    assert write_questions(filled, model, 10) == 0
    assert server.prompts == []
    model.hosted = False
    assert write_questions(filled, model, 10) == 20
