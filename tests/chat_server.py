"""A server on this machine that speaks OpenAI's chat completions, streamed or whole."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from local_server import PROXIES, LocalServer, Response

Said = str | int | Response  # an answer's text, the status of a refusal, or all of it
Reply = Callable[[str], Said]
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def completion(
    text: str | None, finish: str = "stop", usage: dict[str, Any] | None = USAGE, **message: Any
) -> Response:
    """A whole answer with its usage figures; `message` adds to it, such as refusal="…"."""
    message = {"role": "assistant", "content": text, **message}
    choice = {"index": 0, "finish_reason": finish, "message": message}
    body = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    return Response(200, body if usage is None else {**body, "usage": usage})


def failure(status: int, headers: Mapping[str, str] | None = None, **error: Any) -> Response:
    """An error as OpenAI words it."""
    wait = {"retry-after": "0.01"} if headers is None else headers
    return Response(status, {"error": {"message": "something", **error}}, wait)


class ChatServer(LocalServer):
    """Says what is next in `script`, then what `reply(prompt)` says; keeps prompts and requests."""

    def __init__(self, reply: Reply | None = None, script: Sequence[Said] = ()) -> None:
        self.reply = reply
        self.script = list(script)
        self.requests: list[dict[str, Any]] = []
        super().__init__()

    @property
    def prompts(self) -> list[str]:
        return [request["messages"][-1]["content"] for request in self.requests]

    def answer(self, path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Response:
        self.requests.append(body)
        prompt = body["messages"][-1]["content"] if "messages" in body else ""
        said = self.script.pop(0) if self.script or self.reply is None else self.reply(prompt)
        if isinstance(said, int):
            said = failure(said, message="refused by the test")
        elif isinstance(said, str):
            said = completion(said, usage=None)
        return _streamed(said, body) if body.get("stream") and isinstance(said.body, dict) else said


def _streamed(said: Response, request: dict[str, Any]) -> Response:
    """The same answer as server-sent events, three pieces of text; usage only where it was asked for."""
    if "choices" not in said.body:
        return said  # an error
    choice = said.body["choices"][0]
    text = choice["message"]["content"] or ""
    third = len(text) // 3 + 1
    deltas = [{"role": "assistant", "content": text[i : i + third]} for i in range(0, len(text), third)]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    if choice["finish_reason"]:
        choices.append({"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]})
    common = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    chunks: list[dict[str, Any]] = [{**common, "choices": [c]} for c in choices]
    if (request.get("stream_options") or {}).get("include_usage") and "usage" in said.body:
        chunks.append({**common, "choices": [], "usage": said.body["usage"]})
    events = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    data = "".join(events if said.broken else [*events, "data: [DONE]\n\n"]).encode()
    return replace(said, body=data, headers={**said.headers, "Content-Type": "text/event-stream"})


def passages(prompt: str) -> dict[int, str]:
    """The passages of a prompt for ordering, by id."""
    found = [json.loads(line) for line in prompt.splitlines() if re.match(r'\{"id": \d+', line)]
    return {entry["id"]: entry["text"] for entry in found}


@pytest.fixture
def chat_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ChatServer]]:
    """chat_server(reply, script): a running server; LangChain's OpenAI client has a key, and no proxy in its
    way.
    """
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    started: list[ChatServer] = []

    def start(reply: Reply | None = None, script: Sequence[Said] = ()) -> ChatServer:
        started.append(ChatServer(reply, script))
        return started[-1]

    yield start
    for server in started:
        server.close()
