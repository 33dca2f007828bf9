"""Forking, watching and killing the judge's children.

The candidate runs below a small `init` process that is the first of its PID namespace: killing it kills
whatever the candidate left behind, also what called setsid or forked twice. Without namespaces, orphans are
adopted by the judge and hunted down through /proc.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from harness.worker.jail import sandbox
from harness.worker.wire import LARGE_FRAME, Channel, channel_pair

LOG_KEEP = 16 << 10
LOG_LIMIT = 64 << 20


class Log(threading.Thread):
    """Drains a child's standard output and error, keeps the tail, and calls `flood` beyond the limit."""

    def __init__(self, fd: int, flood: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._fd, self._flood = fd, flood
        self._tail = bytearray()
        self.total = 0

    def run(self) -> None:
        while True:
            try:
                part = os.read(self._fd, 1 << 16)
            except OSError:
                return
            if not part:
                return
            self.total += len(part)
            self._tail += part
            del self._tail[:-LOG_KEEP]
            if self.flooded:
                self._flood()

    @property
    def flooded(self) -> bool:
        return self.total > LOG_LIMIT

    def text(self) -> str:
        text = bytes(self._tail).decode(errors="replace")
        return text if self.total <= LOG_KEEP else f"[… {self.total - LOG_KEEP} bytes left out]\n{text}"


class Child:
    """A forked child with its private channel and its log."""

    def __init__(self, pid: int, channel: Channel, log_fd: int, status_fd: int | None = None) -> None:
        self.pid, self.channel = pid, channel
        self._status_fd = status_fd
        self._status: int | None = None
        self._reaped = False
        self.condemned: tuple[str, str] | None = None  # the kind of failure, and one line
        self.log = Log(log_fd, self._kill_now)

    def condemn(self, kind: str, reason: str) -> None:
        """Ends the child and its descendants, for a reason that explains what comes of it."""
        self.condemned = kind, reason
        self._kill_now()

    def _kill_now(self) -> None:
        for pid in (*descendants(self.pid), self.pid):
            _signal(pid)

    def exit_status(self, timeout_s: float = 1.0) -> int | None:
        """Exit code, or minus the signal, of the process that ran the code; None while it still runs."""
        if self._status is None and self._status_fd is not None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._status_fd, selectors.EVENT_READ)
                if selector.select(timeout_s):
                    text = os.read(self._status_fd, 32)
                    self._status = int(text) if text else None
        elif self._status is None and not self._reaped:
            deadline = time.monotonic() + timeout_s
            while time.monotonic() < deadline:
                pid, raw = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self._status, self._reaped = os.waitstatus_to_exitcode(raw), True
                    break
                time.sleep(0.005)
        return self._status


def kill_descendants(limit_s: float = 10.0) -> None:
    """Ends whatever descends from this process, and waits until it is gone.

    What a dead child left behind has become this process's own child, as it is the subreaper; what is forked
    meanwhile is found in the next turn.
    """
    deadline = time.monotonic() + limit_s
    while (found := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in found:
            _signal(pid)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.001)


def fork_child(run: Callable[[Channel], None], keep_fds: tuple[int, ...] = ()) -> Child:
    """Forks a trusted child that runs `run` on its end of a channel and exits."""
    ours, theirs = channel_pair()
    log_read, log_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become_child(theirs, log_write, keep_fds)
        _run_and_exit(run, theirs)
    theirs.close()
    os.close(log_write)
    return Child(pid, ours, log_read)


def fork_jailed(run: Callable[[Channel, sandbox.Report], None]) -> Child:
    """Forks `run` in new namespaces, where the machine grants them.

    Three processes: one enters the namespaces (which would cost the judge its threads), its child is the init
    process of the new PID namespace, and below that runs the candidate.
    """
    sandbox.adopt_orphans()
    ours, theirs = channel_pair()
    log_read, log_write = os.pipe()
    status_read, status_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become_child(theirs, log_write, (status_write,))
        report: sandbox.Report = {}
        sandbox.enter_namespaces(report)
        if os.fork() == 0:
            _run_init(run, report, theirs, status_write)
        theirs.close()
        for fd in (1, 2, status_write):
            os.close(fd)
        os.wait()
        os._exit(0)
    for fd in (log_write, status_write):
        os.close(fd)
    theirs.close()
    return Child(pid, ours, log_read, status_read)


def _run_init(
    run: Callable[[Channel, sandbox.Report], None], report: sandbox.Report, channel: Channel, status_fd: int
) -> None:
    """Forks the process that runs the candidate, reaps everything, and exits when that process does."""
    sandbox.die_with_parent()
    report |= dict.fromkeys(("private-proc", "private-tmp"), "needs a PID namespace")
    if report["pid-namespace"] == "":
        sandbox.private_mounts(report)
    sandbox.adopt_orphans()
    worker = os.fork()
    if worker == 0:
        os.close(status_fd)
        sandbox.die_with_parent()
        _run_and_exit(lambda c: run(c, report), channel)
    channel.close()
    os.close(1)
    os.close(2)
    while True:
        pid, raw = os.wait()
        if pid == worker:
            os.write(status_fd, str(os.waitstatus_to_exitcode(raw)).encode())
            os._exit(0)


def _become_child(channel: Channel, log_fd: int, keep: tuple[int, ...]) -> None:
    sandbox.die_with_parent()
    os.setsid()
    channel.limit = LARGE_FRAME  # what the judge says: a candidate's source may be long
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    kept = sorted({channel.sock.fileno(), *keep})
    low = 3
    for fd in kept:
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, 1 << 16)


def _run_and_exit(run: Callable[[Channel], None], channel: Channel) -> None:
    code = 0
    try:
        run(channel)
    except BaseException:
        code = 70
    finally:
        os._exit(code)


def descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
            except (OSError, IndexError):
                continue
    found: list[int] = []
    frontier = {root}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier and pid not in found}
        found.extend(frontier)
    return found


def _signal(pid: int) -> None:
    with contextlib.suppress(OSError):  # it may be gone already
        os.kill(pid, signal.SIGKILL)


def describe_status(status: int | None) -> str:
    """`exited with code 3`, `was killed by SIGSEGV`."""
    if status is None:
        return "vanished"
    if status >= 0:
        return f"exited with code {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
