"""A real HTTP server on this machine, for what tests ask over the network."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True)
class Response:
    """What a server says: `body` as JSON, or bytes as they are. `broken`: it hangs up before all is sent."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    broken: bool = False


class LocalServer:
    """Answers every POST with what `answer` says; subclasses decide."""

    def __init__(self) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                response = server.answer(self.path, body, self.headers)
                raw = response.body
                data = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
                self.send_response(response.status)
                for name, value in {"Content-Type": "application/json", **response.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data) + (10 if response.broken else 0)))
                self.end_headers()
                self.close_connection = self.close_connection or response.broken
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # somebody did not wait
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Response:
        raise NotImplementedError

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
