"""The generator `chat` with LangChain's real OpenAI client against a server on this machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from chat_server import USAGE, ChatServer, completion, failure

from agent.chat import ChatGenerator, ModelAnswerer
from agent.generator import GenerationFailed, GenerationRequest
from harness.worker.model import ProblemFacts
from kb.chat import open_model
from kb.errors import ModelError
from prompts import PromptRecord

FILE = "class ModelNew:\n    pass\n"
GOOD = f"HYPOTHESIS: fuse, 2x\n```python\n{FILE}```"


@pytest.fixture
def provider(chat_server: Callable[..., ChatServer], monkeypatch: pytest.MonkeyPatch) -> ChatServer:
    monkeypatch.setattr("kb.chat._FIRST_WAIT_S", 0.01)
    return chat_server()


@pytest.fixture
def request_() -> GenerationRequest:
    facts = ProblemFacts("p", [], [], [], [], [], [])
    prompt = PromptRecord("Write a kernel.", 4, {}, [], "digest")
    return GenerationRequest(prompt, facts, "", "cpu", None, 1, 0)


def generator(provider: ChatServer) -> ChatGenerator:
    return ChatGenerator(ModelAnswerer(open_model("openai:some-model", provider.url)))


def test_an_answer_becomes_a_candidate(provider, request_):
    provider.script = [completion(GOOD)]
    draft = generator(provider).generate(request_)
    assert draft.source == FILE
    assert draft.hypothesis == "fuse, 2x"
    assert (draft.tokens_in, draft.tokens_out) == (100, 20)
    assert draft.cost_usd is None
    assert draft.raw == GOOD
    sent = provider.requests[0]
    assert sent["messages"][-1] == {"content": "Write a kernel.", "role": "user"}
    assert not {"temperature", "top_p"} & set(sent)


def test_a_cost_that_the_provider_reports_is_kept(provider, request_):
    provider.script = [completion(GOOD, usage={**USAGE, "cost": 0.0125})]
    assert generator(provider).generate(request_).cost_usd == 0.0125


def test_one_repair_round(provider, request_):
    provider.script = [completion("Sure! Use fusion."), completion(GOOD)]
    draft = generator(provider).generate(request_)
    assert draft.source == FILE
    assert (draft.tokens_in, draft.tokens_out) == (200, 40)
    conversation = [m["role"] for m in provider.requests[1]["messages"]]
    assert conversation == ["system", "user", "assistant", "user"]
    assert "no fenced Python file" in provider.requests[1]["messages"][-1]["content"]
    assert draft.notes == {"repaired": True}


def test_what_stays_unparseable_is_handed_over(provider, request_):
    provider.script = [completion("no"), completion("still no")]
    with pytest.raises(GenerationFailed, match="no usable file in two answers") as caught:
        generator(provider).generate(request_)
    assert "no" in caught.value.raw
    assert "still no" in caught.value.raw
    assert caught.value.tokens_in == 200


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (completion("", refusal="I will not."), "the model refused: I will not"),
        (completion("blocked", "content_filter"), "the model refused"),
    ],
)
def test_a_refusal_is_not_asked_again(provider, request_, reply, message):
    provider.script = [reply]
    with pytest.raises(GenerationFailed, match=message):
        generator(provider).generate(request_)
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("first", "complaint"),
    [
        (completion(""), "empty"),
        (completion(None), "empty"),
        (completion(f"```python\n{FILE}", "length"), "cut off"),
    ],
)
def test_empty_and_truncated_answers_are_repaired(provider, request_, first, complaint):
    provider.script = [first, completion(GOOD)]
    assert generator(provider).generate(request_).source == FILE
    assert complaint in provider.requests[1]["messages"][-1]["content"]


def test_limits_and_outages_are_waited_for(provider, request_):
    provider.script = [failure(429), failure(503), failure(500), completion(GOOD)]
    assert generator(provider).generate(request_).source == FILE
    assert len(provider.requests) == 4


def test_patience_is_bounded(provider, request_):
    provider.script = [failure(503)] * 9
    with pytest.raises(ModelError, match="did not answer in 5 attempts") as caught:
        generator(provider).generate(request_)
    assert "resumed" in caught.value.hint
    assert len(provider.requests) == 5


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (failure(401, code="invalid_api_key"), "rejected the key"),
        (failure(403), "rejected the key"),
        (failure(404), "no such model or address"),
        (failure(400, param="temperature"), "rejected the parameter 'temperature'"),
        (failure(400, code="context_length_exceeded"), "exceeds the model's context"),
        (failure(429, code="insufficient_quota"), "quota is used up"),
    ],
)
def test_what_a_retry_cannot_mend_is_one_clear_line(provider, request_, reply, message):
    provider.script = [reply] * 5
    with pytest.raises(ModelError, match=message) as caught:
        generator(provider).generate(request_)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    assert len(provider.requests) == 1


def test_an_unreachable_server_is_named(provider, request_):
    provider.close()
    with pytest.raises(ModelError, match="openai:some-model did not answer"):
        generator(provider).generate(request_)


def test_a_missing_key_is_said_before_anything_is_sent(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelError, match="openai:m cannot be used") as caught:
        open_model("openai:m")
    assert "OPENAI_API_KEY" in caught.value.hint


@pytest.mark.parametrize("name", ["nonsense:m", "anthropic:m"])
def test_unknown_and_uninstalled_providers_are_named(name):
    with pytest.raises(ModelError, match=name):
        open_model(name)


def test_only_servers_on_this_machine_count_as_local(provider):
    assert not open_model("openai:m", provider.url).hosted
    assert not open_model("openai:m", "http://[::1]:8000/v1").hosted
    assert open_model("openai:m").hosted
    assert open_model("openai:m", "https://127.0.0.1.example.com/v1").hosted


def test_the_first_answer_is_paid_for_when_the_repair_request_fails(provider, request_):
    provider.script = [completion("no code"), failure(401)]
    with pytest.raises(GenerationFailed, match="the request for one failed") as caught:
        generator(provider).generate(request_)
    assert (caught.value.tokens_in, caught.value.tokens_out) == (100, 20)
    assert caught.value.raw == "no code"
