"""Messages between the judge, its children and the executor: length-limited JSON frames over a socket.

Nothing is ever unpickled. A frame is a 4-byte little-endian length and that many bytes of JSON. The names
bound below are looked up once, at import: a candidate that replaces `json.dumps` later changes nothing here.
"""

from __future__ import annotations

import array
import json
import socket
import struct
import time
from typing import Any

SMALL_FRAME = 1 << 16  # what a candidate may say at once
LARGE_FRAME = 1 << 27  # requests, traced graphs and generated sources of trusted processes

_HEADER = struct.Struct("<I")
_dumps, _loads, _monotonic = json.dumps, json.loads, time.monotonic


class WireError(Exception):
    """The other side closed the channel, was too slow or sent something that is no frame."""


class Closed(WireError):
    """The other side is gone."""


class Late(WireError):
    """No complete frame before the deadline."""


class Channel:
    """One end of a stream socket that carries JSON frames and, beside them, file descriptors."""

    def __init__(self, sock: socket.socket, limit: int = SMALL_FRAME) -> None:
        self.sock = sock
        self.limit = limit

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Raises Closed when the other side is gone."""
        body = _dumps(message).encode()
        frame = _HEADER.pack(len(body)) + body
        try:
            self.sock.settimeout(None)
            if fds:
                ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                sent = self.sock.sendmsg([frame], ancillary)
                frame = frame[sent:]
            self.sock.sendall(frame)
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        """The next message; raises Late after `timeout_s` seconds, Closed or WireError otherwise."""
        deadline = None if timeout_s is None else _monotonic() + timeout_s
        (length,) = _HEADER.unpack(self._exactly(_HEADER.size, deadline))
        if length > self.limit:
            raise WireError(f"a message of {length} bytes is longer than the limit of {self.limit}")
        try:
            message = _loads(self._exactly(length, deadline))
        except (ValueError, RecursionError) as error:
            raise WireError("a message is not JSON") from error
        if not isinstance(message, dict):
            raise WireError("a message is not a JSON object")
        return message

    def receive_with_fds(self, count: int) -> tuple[dict[str, Any], list[int]]:
        """The next message together with exactly `count` file descriptors sent beside it."""
        fds = array.array("i")
        self.sock.settimeout(None)
        head, ancillary, _, _ = self.sock.recvmsg(_HEADER.size, socket.CMSG_SPACE(count * fds.itemsize))
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        if not head:
            raise Closed("the other side closed the channel")
        head += self._exactly(_HEADER.size - len(head), None)
        (length,) = _HEADER.unpack(head)
        if length > self.limit or len(fds) != count:
            raise WireError("a message came without its file descriptors")
        return _loads(self._exactly(length, None)), list(fds)

    def close(self) -> None:
        self.sock.close()

    def _exactly(self, size: int, deadline: float | None) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            if deadline is None:
                self.sock.settimeout(None)
            else:
                left = deadline - _monotonic()
                if left <= 0:
                    raise Late("no answer in time")
                self.sock.settimeout(left)
            try:
                part = self.sock.recv(min(size - len(parts), 1 << 20))
            except TimeoutError as error:
                raise Late("no answer in time") from error
            except OSError as error:
                raise Closed(str(error)) from error
            if not part:
                raise Closed("the other side closed the channel")
            parts += part
        return bytes(parts)


def channel_pair() -> tuple[Channel, Channel]:
    """Two connected ends."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Channel(left), Channel(right)
