"""The machine as a shared resource: one measurement at a time, and who else used the CPUs meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from harness.worker import environment
from harness.worker.jail.processes import descendants

LOCK_WAIT_S = 120.0
PRIORITY = -15
FOREIGN_SHARE = 0.1  # of all CPUs; from here on a measurement is repeated, or carries a flag

Measured = TypeVar("Measured")


def lock_name(device: str) -> str:
    """What the lock of this process's device is called: `cpu`, `cuda-0`."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return device if device == "cpu" else f"{device}-{re.sub(r'[^A-Za-z0-9-]', '-', chosen)}"


@contextlib.contextmanager
def measuring_alone(name: str) -> Iterator[bool]:
    """Holds this user's lock of that name; yields False where it was not free for two minutes."""
    path = Path(tempfile.gettempdir()) / f"kernelevolve-{os.getuid()}-{name}.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield _locked(fd)
    finally:
        os.close(fd)


def _locked(fd: int) -> bool:
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        else:
            return True


def prefer_ours() -> None:
    """Raises the priority of this process and its descendants, where that is permitted (to root).

    Other people's jobs then disturb a measurement less; what they still took is reported by CpuAccount.
    Nothing is lowered again: all these processes end with the verdict.
    """
    for pid in (os.getpid(), *descendants(os.getpid())):
        try:
            threads = [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
            for thread in threads:
                os.setpriority(os.PRIO_PROCESS, thread, PRIORITY)
            # Where the scheduler groups sessions, niceness counts between the groups only when set on the
            # group.
            Path(f"/proc/{pid}/autogroup").write_text(str(PRIORITY))
        except OSError:
            continue


def spread_threads() -> None:
    """Gives each thread of a process a CPU of its own, as far as there are enough.

    On a busy machine the scheduler puts two OpenMP threads of one process onto the same CPU, in one run the
    reference's and in the next the candidate's. Threads that are created later inherit one CPU: callers leave
    out candidates that make threads of their own.
    """
    cpus = sorted(os.sched_getaffinity(0))
    for pid in descendants(os.getpid()):
        try:
            threads = {int(e.name): _run_ns(e) for e in Path(f"/proc/{pid}/task").iterdir()}
            busiest = sorted(threads, key=lambda thread: -threads[thread])
            for i, thread in enumerate(busiest) if len(threads) > 1 else ():
                os.sched_setaffinity(thread, {cpus[i % len(cpus)]})
        except OSError:
            continue


def undisturbed(measure: Callable[[], Measured], budget_s: float, attempts: int) -> tuple[Measured, float]:
    """Measures anew where others used the CPUs: at most `attempts` times, and no more after `budget_s`.

    Returns the least disturbed measurement and the share of the CPUs that others had meanwhile.
    """
    deadline = time.monotonic() + budget_s
    best: tuple[Measured, float] | None = None
    for _ in range(attempts):
        account = CpuAccount()
        measured, foreign = measure(), account.foreign_share()
        if best is None or foreign < best[1]:
            best = measured, foreign
        if foreign <= FOREIGN_SHARE or time.monotonic() > deadline:
            break
    assert best is not None
    return best


class CpuAccount:
    """How much of the CPUs others used since this was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._busy, self._own = _busy_s(), _own_s()

    def foreign_share(self) -> float:
        """CPU time of other processes (and other virtual machines) over the time of all usable CPUs."""
        elapsed = time.monotonic() - self._start
        foreign = (_busy_s() - self._busy) - (_own_s() - self._own)
        return max(0.0, foreign / (elapsed * environment.usable_cpus())) if elapsed > 0 else 0.0


def _busy_s() -> float:
    try:
        fields = [int(f) for f in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    except (OSError, ValueError):
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _run_ns(thread: Path) -> int:
    return int((thread / "schedstat").read_text().split()[0])


def _ticks(process: Path) -> int:
    """CPU time of a process, or of a thread's folder below `task`, in clock ticks."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _own_s() -> float:
    """CPU seconds of this process and all its descendants."""
    ticks = 0
    for pid in (os.getpid(), *descendants(os.getpid())):
        with contextlib.suppress(OSError):  # it may have ended
            ticks += _ticks(Path(f"/proc/{pid}"))
    return ticks / os.sysconf("SC_CLK_TCK")
