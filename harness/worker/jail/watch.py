"""Watches what all processes of a candidate use together: the kernel's own limits hold for each one alone.

On a device, it is also the only limit on memory: a driver reserves address space by the terabyte, so that a
limit on that means nothing there.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

from harness.worker.jail.processes import Child, descendants
from harness.worker.model import EvaluationRequest

INTERVAL_S, LONGEST_INTERVAL_S = 0.2, 1.0
_LISTED = Path("/proc/thread-self/children")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_limit_s(request: EvaluationRequest, threads: int) -> int:
    """CPU seconds that a candidate and its compilers may use: all threads busy, for as long as the longest
    honest evaluation could take.
    """
    return (
        int(threads * (request.build_limit_s + 30 * request.run_limit_s + 10 * request.timing_budget_s)) + 1
    )


class Watch(threading.Thread):
    """Ends the child with all its descendants as soon as they go beyond `memory` bytes, `cpu_s` seconds or
    `tasks` threads.
    """

    def __init__(self, child: Child, memory: int, cpu_s: float, tasks: int) -> None:
        super().__init__(daemon=True)
        self._child, self._memory, self._cpu_s, self._tasks = child, memory, cpu_s, tasks

    def run(self) -> None:
        took_s = 0.0
        while True:
            # A look takes a fraction of a millisecond per process: never more than a tenth of the time.
            time.sleep(min(max(INTERVAL_S, 9 * took_s), LONGEST_INTERVAL_S))
            start = time.monotonic()
            pids = tree(self._child.pid)
            if not pids:
                return
            if sum(pids.values()) > self._tasks:  # the kernel's limit does not bind root
                self._child.condemn("tasks", f"ran more than {self._tasks} processes and threads")
            elif (used_s := sum(map(_cpu_s, pids))) > self._cpu_s:
                self._child.condemn("timeout", f"used {used_s:.0f} s of CPU time")
            # What is shared after a fork counts several times in the first figure, which is quick to get.
            elif sum(map(_resident, pids)) > self._memory and (held := sum(map(_held, pids))) > self._memory:
                self._child.condemn("memory", f"its processes held {held / (1 << 30):.3g} GiB")
            if self._child.condemned is not None:
                return
            took_s = time.monotonic() - start


def tree(root: int) -> dict[int, int]:
    """How many threads the process and each of its descendants has; empty when it has ended."""
    listed = _LISTED.exists()  # not all kernels list children
    found: dict[int, int] = {}
    waiting = [root] if listed else [root, *descendants(root)]
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(OSError):  # it has just ended
            threads = [entry.name for entry in Path(f"/proc/{pid}/task").iterdir()]
            found[pid] = len(threads)
            for thread in threads if listed else ():
                waiting += map(int, proc_bytes(f"/proc/{pid}/task/{thread}/children").split())
    return found


def proc_bytes(path: str) -> bytes:
    """What a file of /proc says: several times as quick as by `Path`. Raises OSError."""
    text, fd = b"", os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while part := os.read(fd, 1 << 16):  # a page at a time
            text += part
    finally:
        os.close(fd)
    return text


def _cpu_s(pid: int) -> float:
    """Of a process and the children that it has waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) * TICK_S


def _resident(pid: int) -> int:
    """Bytes of memory that are no file's."""
    return sum_kib(Path(f"/proc/{pid}/status"), ("RssAnon:", "RssShmem:"))


def _held(pid: int) -> int:
    """The same with shared pages divided among those who share them."""
    return sum_kib(Path(f"/proc/{pid}/smaps_rollup"), ("Pss_Anon:", "Pss_Shmem:")) or _resident(pid)


def sum_kib(path: Path, names: tuple[str, ...]) -> int:
    """Bytes: the fields of these names in a process's file, added up; 0 where it has ended."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(names))
