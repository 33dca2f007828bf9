"""Who works on a step: an identity that outlives its process only on paper."""

from __future__ import annotations

import os
import socket
import uuid
from datetime import UTC, datetime
from pathlib import Path


def this_process() -> str:
    """`host:pid:start:token`: the start time tells a process from a later one with the same number."""
    return f"{socket.gethostname()}:{os.getpid()}:{_start_time(os.getpid())}:{uuid.uuid4().hex[:8]}"


def alive(owner: str, lease_until: datetime | None) -> bool:
    """Whether a lease still counts. On this host the process decides, elsewhere the clock."""
    try:
        host, pid, start, _token = owner.rsplit(":", 3)
        number = int(pid)
    except ValueError:
        return False
    if host == socket.gethostname():
        return _start_time(number) == start != ""
    return lease_until is not None and lease_until > datetime.now(UTC)


def _start_time(pid: int) -> str:
    """Clock ticks between boot and the process's start; empty when there is no such (living) process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return ""
    state, start = fields[0], fields[19]
    return "" if state in ("Z", "X") else start
