"""CPU time that a candidate takes while the reference is timed: it has been asked for nothing then.

Its threads and processes share the CPUs, the caches and the memory with eager. What they do meanwhile makes
eager slow, and the candidate look fast.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.worker.jail.watch import TICK_S, proc_bytes, tree
from harness.worker.trial import Trial, Verdict

if TYPE_CHECKING:
    from harness.worker.timing import Measurement

# What a measurement may take: a thread that looks around now and then, and once what somebody had begun.
ALLOWED_SHARE, ALLOWED_S = 0.05, 0.005
# Nobody spins who takes less of a pause than this. Runtimes that busy-wait go on for 0.2 s (KMP_BLOCKTIME);
# what a compiler or a pool of workers has begun when it was first used may take longer.
QUIET_SHARE = 0.2
PATIENCE_S, FIRST_PATIENCE_S = 1.0, 5.0
_CPUCLOCK_SCHED = 2  # linux/posix-timers.h: of a whole process, threads that have ended included


@dataclass(frozen=True)
class _Used:
    """CPU seconds of one process, and of the children that it has waited for."""

    own_s: float
    waited_s: float


class Idleness:
    """Adds up the CPU time of the processes at and below `root` while they are watched.

    Watching costs some tens of microseconds for each process and thread, waiting next to nothing.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self.used_s = self.watched_s = 0.0
        self._patience_s = FIRST_PATIENCE_S
        self._last: dict[int, _Used] = {}

    def settle(self, pause_s: float) -> None:
        """Pauses until they are quiet; not for ever: what goes on then is seen while they are watched."""
        deadline = time.monotonic() + self._patience_s
        self._patience_s = min(self._patience_s, PATIENCE_S)
        pids = self._last or tree(self.root)
        while True:
            before = _own_s(pids)
            time.sleep(pause_s)
            if _own_s(pids) - before <= QUIET_SHARE * pause_s:
                return
            if time.monotonic() > deadline:
                self._patience_s = 0.0
                return

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """What they take meanwhile counts."""
        before, start = self._read(), time.monotonic()
        yield
        self.watched_s += time.monotonic() - start
        self.used_s += _taken(before, self._read())

    @property
    def finding(self) -> str:
        """One line where they took more than is explained, else an empty string."""
        if self.used_s <= ALLOWED_SHARE * self.watched_s + ALLOWED_S:
            return ""
        return (
            f"its threads or processes used the CPUs for {1e3 * self.used_s:.3g} ms of the "
            f"{1e3 * self.watched_s:.3g} ms in which the reference was timed"
        )

    def _read(self) -> dict[int, _Used]:
        read = {}
        for pid in tree(self.root):
            with contextlib.suppress(OSError):  # it has just ended
                read[pid] = _Used(_clock_s(pid), _waited_s(pid))
        self._last = read
        return read


def _clock_s(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def _own_s(pids: Iterable[int]) -> float:
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += _clock_s(pid)
    return total


def _waited_s(pid: int) -> float:
    fields = proc_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (int(fields[13]) + int(fields[14])) * TICK_S


def _taken(before: dict[int, _Used], after: dict[int, _Used]) -> float:
    """Also by processes that came, and by those that came and went, as far as somebody waited for them."""
    none = _Used(0.0, 0.0)
    own = sum(max(0.0, used.own_s - before.get(pid, none).own_s) for pid, used in after.items())
    waited = sum(used.waited_s - before.get(pid, none).waited_s for pid, used in after.items())
    known = sum(used.own_s + used.waited_s for pid, used in before.items() if pid not in after)
    return own + max(0.0, waited - known)


def measured_in_quiet(trial: Trial, measure: Callable[[], Measurement]) -> Measurement:
    """Measures once more where the candidate worked unasked; raises Verdict where it does so again."""
    measured = measure()
    if measured.unasked:
        measured = measure()
    if measured.unasked:
        trial.flag("background-work", "reject", measured.unasked)
        raise Verdict("rejected", f"background-work: {measured.unasked}")
    return measured
