"""Calling a chat model: patience, what providers reject, streaming and cost, against a real HTTP server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from chat_server import USAGE, ChatServer, completion, failure
from langchain_core.messages import HumanMessage
from local_server import Response

from kb import Settings
from kb.chat import ChatModel, open_model
from kb.errors import ModelError, ModelUnavailable, SettingsError
from kb.settings import Price

ASK = [HumanMessage("Write a kernel.")]


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(chat_server: Callable[..., ChatServer]) -> ChatServer:
    return chat_server()


@pytest.fixture
def opened(server: ChatServer, clock: Clock) -> Callable[..., ChatModel]:
    def make(**options: Any) -> ChatModel:
        return open_model("openai:m", server.url, sleep=clock.sleep, clock=lambda: clock.now, **options)

    return make


def test_a_provider_that_is_down_for_ten_minutes(server: ChatServer, opened: Any, clock: Clock) -> None:
    server.reply = lambda _: 503 if clock.now < 600 else "here"
    reply = opened(attempts=100, patience_s=1800).ask(ASK)
    assert reply.text == "here"
    assert 600 <= clock.now < 700, "it is asked again within a minute or so"
    assert len(server.requests) < 40, "and not all the time"
    assert "had to be asked again" in reply.notes[0]


def test_patience_ends_where_it_was_said_to(server: ChatServer, opened: Any, clock: Clock) -> None:
    server.reply = lambda _: failure(503, {})
    with pytest.raises(ModelUnavailable, match="did not answer in") as caught:
        opened(attempts=100, patience_s=300).ask(ASK)
    assert 200 < clock.now <= 300
    assert "resumed" in caught.value.hint


@pytest.mark.parametrize(
    ("headers", "pause"),
    [
        ({"retry-after": "97"}, 97.0),
        ({"Retry-After-Ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "a date"}, 400.0),
        ({"retry-after": "soon"}, 1.0),
    ],
)
def test_the_provider_says_when_to_come_back(
    server: ChatServer, opened: Any, clock: Clock, headers: dict[str, str], pause: float
) -> None:
    if headers["retry-after"] == "a date":  # made here: a whole run of the tests takes minutes
        then = datetime.now(UTC) + timedelta(seconds=400)
        headers = {"retry-after": format_datetime(then, usegmt=True)}
    server.script = [failure(429, headers), completion("here")]
    assert opened(patience_s=600).ask(ASK).text == "here"
    assert clock.pauses == [pytest.approx(pause, rel=0.5 if pause == 1.0 else 0.15)]


def test_nobody_waits_for_longer_than_there_is_patience(
    server: ChatServer, opened: Any, clock: Clock
) -> None:
    server.script = [failure(429, {"retry-after": "3600"})]
    with pytest.raises(ModelUnavailable, match="the next would be in 3600 s"):
        opened(patience_s=600).ask(ASK)
    assert clock.pauses == []


@pytest.mark.parametrize(
    "error",
    [
        {"param": "temperature", "code": "unsupported_value", "message": "not supported with this model"},
        {"message": "Unsupported parameter: 'temperature'"},
        {"message": "temperature: Extra inputs are not permitted"},
    ],
)
def test_a_rejected_parameter_is_left_out_once_and_for_all(
    server: ChatServer, opened: Any, error: dict[str, str]
) -> None:
    def picky(body: dict[str, Any]) -> Response:
        return failure(400, **error) if "temperature" in body else completion("here")

    server.reply = lambda _: picky(server.requests[-1])
    model = opened(parameters={"temperature": 0.3, "seed": 7})
    reply = model.ask(ASK)
    assert reply.text == "here"
    assert reply.notes == ("openai:m does not take 'temperature': it was left out",)
    assert server.requests[-1]["seed"] == 7
    assert model.ask(ASK).notes == ()
    assert len(server.requests) == 3


def test_one_rejected_parameter_after_the_other(server: ChatServer, opened: Any) -> None:
    def picky(body: dict[str, Any]) -> Response:
        wrong = next((name for name in ("temperature", "seed") if name in body), None)
        return failure(400, param=wrong) if wrong else completion("here")

    server.reply = lambda _: picky(server.requests[-1])
    assert len(opened(parameters={"temperature": 0.3, "seed": 7, "top_p": 1.0}).ask(ASK).notes) == 2
    assert server.requests[-1]["top_p"] == 1.0
    assert len(server.requests) == 3


def test_a_parameter_under_the_providers_name(server: ChatServer, opened: Any) -> None:
    server.script = [failure(400, param="max_completion_tokens"), completion("here")]
    assert "'max_tokens'" in opened(parameters={"max_tokens": 100}).ask(ASK).notes[0]


@pytest.mark.filterwarnings("ignore:.*top_k.*")
def test_a_parameter_that_the_client_does_not_know_is_left_out(server: ChatServer, opened: Any) -> None:
    server.script = [completion("here")]
    reply = opened(parameters={"top_k": 5, "seed": 7}).ask(ASK)
    assert reply.notes == ("openai:m does not take 'top_k': it was left out",)
    assert server.requests[0]["seed"] == 7


def test_what_was_not_sent_cannot_be_left_out(server: ChatServer, opened: Any) -> None:
    server.script = [failure(400, param="messages")] * 2
    with pytest.raises(ModelError, match="rejected the parameter 'messages'"):
        opened(parameters={"temperature": 1.0}).ask(ASK)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "error",
    [
        {"code": "context_length_exceeded"},
        {"message": "This model's maximum context length is 8192 tokens. temperature"},
        {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"},
        {"message": "prompt is too long: 210000 tokens > 200000 maximum"},
        {"message": "The input token count (1048999) exceeds the maximum number of tokens allowed"},
    ],
)
def test_context_overflow_in_the_words_of_several_providers(
    server: ChatServer, opened: Any, error: dict[str, str]
) -> None:
    server.script = [failure(400, **error)] * 2
    with pytest.raises(ModelError, match="exceeds the model's context") as caught:
        opened(parameters={"temperature": 0.0}).ask(ASK)
    assert "token budget" in caught.value.hint
    assert len(server.requests) == 1


def test_errors_that_come_with_status_200(server: ChatServer, opened: Any) -> None:
    server.script = [Response(200, {"error": {"message": "slow down", "code": 429}}), completion("here")]
    assert opened().ask(ASK).text == "here"
    server.script = [Response(200, {"error": {"message": "no key", "code": 401}})]
    with pytest.raises(ModelError, match="rejected the key"):
        opened().ask(ASK)


def test_one_request_beyond_the_rate_limit_is_not_repeated(server: ChatServer, opened: Any) -> None:
    message = "Request too large for m on tokens per min (TPM): Limit 30000, Requested 41000."
    server.script = [failure(429, code="rate_limit_exceeded", message=message)] * 2
    with pytest.raises(ModelError, match="exceeds the account's rate limit"):
        opened().ask(ASK)


def test_an_answer_that_breaks_off_is_asked_for_again(server: ChatServer, opened: Any) -> None:
    server.script = [replace(completion("half"), broken=True), completion("whole")]
    assert opened().ask(ASK).text == "whole"


def test_an_account_without_credit_is_named(server: ChatServer, opened: Any) -> None:
    server.script = [failure(400, message="Your credit balance is too low to access the API.")]
    with pytest.raises(ModelError, match="quota is used up"):
        opened().ask(ASK)


def test_a_refusal_of_the_responses_api_is_one(server: ChatServer, opened: Any) -> None:
    content = [{"type": "refusal", "refusal": "I will not."}]
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}
    body = {
        "id": "r", "object": "response", "created_at": 0, "model": "m", "status": "completed",
        "output": [message], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    server.script = [Response(200, body)]
    reply = opened(parameters={"use_responses_api": True}).ask(ASK)
    assert (reply.finish, reply.text) == ("refusal", "I will not.")


# --- streaming ---


def test_a_streamed_answer_comes_in_pieces_with_its_usage(server: ChatServer, opened: Any) -> None:
    server.script = [completion("one two three four")]
    pieces: list[str] = []
    reply = opened(price=Price(input=1.0, output=10.0)).ask(ASK, pieces.append)
    assert reply.text == "".join(pieces) == "one two three four"
    assert len(pieces) == 3
    assert (reply.finish, reply.tokens_in, reply.tokens_out) == ("stop", 100, 20)
    assert reply.cost_usd == pytest.approx(300e-6)


def test_a_server_without_usage_in_streams_is_asked_without(server: ChatServer, opened: Any) -> None:
    def picky(body: dict[str, Any]) -> Response:
        rejected = failure(400, message="Unrecognized request argument supplied: stream_options")
        return rejected if "stream_options" in body else completion("here")

    server.reply = lambda _: picky(server.requests[-1])
    model = opened(price=Price(input=1.0, output=10.0))
    reply = model.ask(ASK, lambda _: None)
    assert reply.text == "here"
    assert not reply.metered
    assert reply.cost_usd is None, "unknown, not nothing"
    assert "'stream_usage'" in reply.notes[0]
    assert model.ask(ASK, lambda _: None).notes == ()


def test_a_stream_that_is_cut_is_asked_for_again(server: ChatServer, opened: Any) -> None:
    server.script = [replace(completion("half of it"), broken=True), completion("whole")]
    assert opened().ask(ASK, lambda _: None).text == "whole"


def test_an_error_in_the_middle_of_a_stream_may_pass(server: ChatServer, opened: Any) -> None:
    error = b'data: {"error": {"message": "Overloaded", "type": "overloaded_error"}}\n\n'
    server.script = [Response(200, error, {"Content-Type": "text/event-stream"}), completion("whole")]
    assert opened().ask(ASK, lambda _: None).text == "whole"


def test_a_stream_that_ends_without_a_word_counts_as_cut_off(server: ChatServer, opened: Any) -> None:
    server.script = [completion("half", "")]
    assert opened().ask(ASK, lambda _: None).finish == "length"


# --- cost ---


def test_cost_is_the_providers_else_by_the_users_price_else_unknown(server: ChatServer, opened: Any) -> None:
    cached = {**USAGE, "prompt_tokens_details": {"cached_tokens": 60}}
    server.script = [completion("a", usage={**USAGE, "cost": 0.5}), completion("b", usage=cached)]
    model = opened(price=Price(input=1.0, output=10.0, cached=0.1))
    assert model.ask(ASK).cost_usd == 0.5
    assert model.ask(ASK).cost_usd == pytest.approx((40 * 1.0 + 60 * 0.1 + 20 * 10.0) / 1e6)
    server.script = [completion("a")]
    assert opened().ask(ASK).cost_usd is None
    server.script = [completion("a", usage=None)]
    reply = opened(price=Price(input=1.0, output=10.0)).ask(ASK)
    assert (reply.cost_usd, reply.metered) == (None, False)


def test_prices_are_settings(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernelevolve.toml").write_text('[prices."openai:m"]\ninput = 1.25\noutput = 10\n')
    assert Settings(home=tmp_path).prices["openai:m"].cost(1_000_000, 100_000) == pytest.approx(2.25)
    for wrong in ("input = -1\noutput = 1", "input = 1", "input = 1\noutput = 2\nimage = 3"):
        (tmp_path / "kernelevolve.toml").write_text(f'[prices."openai:m"]\n{wrong}\n')
        with pytest.raises(SettingsError, match=r"prices\.openai:m"):
            Settings(home=tmp_path)


def test_an_address_with_a_password_is_refused() -> None:
    with pytest.raises(ModelError, match="no credentials"):
        open_model("openai:m", "https://me:secret@example.com/v1")
