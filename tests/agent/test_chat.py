"""The generator `chat` with LangChain's real OpenAI client against a server on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agent.chat import ChatGenerator
from agent.generator import GenerationFailed, GenerationRequest
from harness.worker.model import ProblemFacts
from kb.chat import open_model
from kb.errors import ModelError
from prompts import PromptRecord

FILE = "class ModelNew:\n    pass\n"
GOOD = f"HYPOTHESIS: fuse, 2x\n```python\n{FILE}```"


def answer(
    text: str | None, finish: str = "stop", **message: Any
) -> tuple[int, dict[str, Any], dict[str, str]]:
    message = {"role": "assistant", "content": text, **message}
    body = {
        "id": "x", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }  # fmt: skip
    return 200, body, {}


def failure(status: int, **error: Any) -> tuple[int, dict[str, Any], dict[str, str]]:
    return status, {"error": {"message": "something", **error}}, {"retry-after": "0.01"}


class FakeProvider:
    """Speaks OpenAI's chat completions; gives the scripted responses one after the other."""

    def __init__(self) -> None:
        self.script: list[tuple[int, dict[str, Any], dict[str, str]]] = []
        self.requests: list[dict[str, Any]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                provider.requests.append(json.loads(body))
                status, reply, headers = provider.script.pop(0)
                data = json.dumps(reply).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Type": "application/json"}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProvider]:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    fake = FakeProvider()
    yield fake
    fake.close()


@pytest.fixture
def request_() -> GenerationRequest:
    facts = ProblemFacts("p", [], [], [], [], [], [])
    prompt = PromptRecord("Write a kernel.", 4, {}, [], "digest")
    return GenerationRequest(prompt, facts, "", "cpu", None, 1, 0)


def generator(provider: FakeProvider) -> ChatGenerator:
    return ChatGenerator(open_model("openai:some-model", provider.url))


def test_an_answer_becomes_a_candidate(provider, request_):
    provider.script = [answer(GOOD)]
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
    status, body, headers = answer(GOOD)
    body["usage"]["cost"] = 0.0125
    provider.script = [(status, body, headers)]
    assert generator(provider).generate(request_).cost_usd == 0.0125


def test_one_repair_round(provider, request_):
    provider.script = [answer("Sure! Use fusion."), answer(GOOD)]
    draft = generator(provider).generate(request_)
    assert draft.source == FILE
    assert (draft.tokens_in, draft.tokens_out) == (200, 40)
    conversation = [m["role"] for m in provider.requests[1]["messages"]]
    assert conversation == ["system", "user", "assistant", "user"]
    assert "no fenced Python file" in provider.requests[1]["messages"][-1]["content"]
    assert draft.notes == {"repaired": True}


def test_what_stays_unparseable_is_handed_over(provider, request_):
    provider.script = [answer("no"), answer("still no")]
    with pytest.raises(GenerationFailed, match="no usable file in two answers") as caught:
        generator(provider).generate(request_)
    assert "no" in caught.value.raw
    assert "still no" in caught.value.raw
    assert caught.value.tokens_in == 200


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (answer("", refusal="I will not."), "the model refused: I will not"),
        (answer("blocked", "content_filter"), "the model refused"),
    ],
)
def test_a_refusal_is_not_asked_again(provider, request_, reply, message):
    provider.script = [reply]
    with pytest.raises(GenerationFailed, match=message):
        generator(provider).generate(request_)
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("first", "complaint"),
    [(answer(""), "empty"), (answer(None), "empty"), (answer(f"```python\n{FILE}", "length"), "cut off")],
)
def test_empty_and_truncated_answers_are_repaired(provider, request_, first, complaint):
    provider.script = [first, answer(GOOD)]
    assert generator(provider).generate(request_).source == FILE
    assert complaint in provider.requests[1]["messages"][-1]["content"]


def test_limits_and_outages_are_waited_for(provider, request_):
    provider.script = [failure(429), failure(503), failure(500), answer(GOOD)]
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


def test_an_unreachable_server_is_named(provider, request_, monkeypatch):
    provider.close()
    monkeypatch.setattr("kb.chat._FIRST_WAIT_S", 0.001)
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
    provider.script = [answer("no code"), failure(401)]
    with pytest.raises(GenerationFailed, match="the request for one failed") as caught:
        generator(provider).generate(request_)
    assert (caught.value.tokens_in, caught.value.tokens_out) == (100, 20)
    assert caught.value.raw == "no code"
