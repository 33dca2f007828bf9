"""A first call may compile, which takes as long as a build may. One that only hangs is ended sooner.

A kernel that never returns leaves no other trace than time. Who compiles runs a compiler, or needs more and
more memory while it imports, traces and lowers. On a device, where a kernel runs after forward has returned,
the child says when that was (`Side.first_call`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from harness.worker.jail.processes import Child
from harness.worker.jail.watch import sum_kib, tree

LOOK_EVERY_S = 0.25
OWN_PROCESSES = 3  # what `fork_jailed` makes: any other one is the candidate's


@contextlib.contextmanager
def ended_when_idle(child: Child, limit_s: float) -> Iterator[None]:
    """Ends the child once it has neither had another process nor needed more memory for `limit_s` seconds."""
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(child, limit_s, over), daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()


def _watch(child: Child, limit_s: float, over: threading.Event) -> None:
    since, most = time.monotonic(), 0
    while not over.wait(LOOK_EVERY_S):
        pids = tree(child.pid)
        held = sum(sum_kib(Path(f"/proc/{pid}/status"), ("VmHWM:",)) for pid in pids)
        if len(pids) > OWN_PROCESSES or held > most:
            since, most = time.monotonic(), held
        elif time.monotonic() - since > limit_s:
            child.condemn("timeout", f"forward took longer than {limit_s:.3g} s, and compiled nothing")
            return
