"""A server on this machine that speaks OpenAI's chat completions."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Reply = Callable[[str], str | int]  # an answer's text, or the status of a refusal


class ChatServer:
    """Answers every prompt with what `reply(prompt)` says, and keeps the prompts."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.prompts: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                prompt = body["messages"][-1]["content"]
                server.prompts.append(prompt)
                said = server.reply(prompt)
                if isinstance(said, int):
                    status, document = said, {"error": {"message": "refused by the test"}}
                else:
                    message = {"role": "assistant", "content": said}
                    choice = {"index": 0, "finish_reason": "stop", "message": message}
                    document = {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice]}
                    document["created"] = 0
                    status = 200
                data = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with contextlib.suppress(BrokenPipeError):  # somebody did not wait
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def passages(prompt: str) -> dict[int, str]:
    """The passages of a prompt for ordering, by id."""
    found = [json.loads(line) for line in prompt.splitlines() if re.match(r'\{"id": \d+', line)]
    return {entry["id"]: entry["text"] for entry in found}


@pytest.fixture
def chat_server(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[Callable[[str], str | int]], ChatServer]]:
    """chat_server(reply): a running server; LangChain's OpenAI client has a key, and no proxy in its way."""
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    started: list[ChatServer] = []

    def start(reply: Reply) -> ChatServer:
        started.append(ChatServer(reply))
        return started[-1]

    yield start
    for server in started:
        server.close()
