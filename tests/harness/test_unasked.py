"""What a candidate does while the reference is timed makes eager slow: it is counted, and rejected."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from harness import Evaluation
from harness.worker.timing import Measurement
from harness.worker.trial import Verdict
from harness.worker.unasked import Idleness, measured_in_quiet

Evaluate = Callable[..., Evaluation]
Body = Callable[..., str]
HONEST = "return torch.relu(self.ln(x))"

# Each line is a request; all of them burn 60 ms of CPU time.
WORKER = """
import os, sys, threading, time
def burn():
    start = time.thread_time()
    while time.thread_time() - start < 0.06: pass
for line in sys.stdin:
    if line == "itself\\n": burn()
    if line == "thread\\n":
        thread = threading.Thread(target=burn); thread.start(); thread.join()
    if line == "child\\n":
        pid = os.fork()
        if pid == 0: burn(); os._exit(0)
        os.waitpid(pid, 0)
    if line == "left\\n":
        ready = os.pipe()
        if os.fork() == 0:
            burn(); os.write(ready[1], b"x"); time.sleep(5); os._exit(0)
        os.read(ready[0], 1)
    print(line, end="", flush=True)
"""


@pytest.fixture
def worker() -> Iterator[Any]:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(line: str) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == line + "\n"

        ask("nothing")
        yield SimpleNamespace(pid=process.pid, ask=ask)
        process.kill()


@pytest.mark.parametrize("who", ["itself", "thread", "child", "left"])
def test_cpu_time_of_the_whole_tree_is_counted(worker: Any, who: str) -> None:
    """Of threads that have ended, processes that have come, and processes that came and went, too."""
    idleness = Idleness(worker.pid)
    worker.ask(who)  # not watched
    with idleness.watched():
        worker.ask("nothing")
    assert idleness.used_s < 0.01
    assert idleness.finding == ""
    with idleness.watched():
        worker.ask(who)
    assert 0.045 <= idleness.used_s <= 0.12
    assert "in which the reference was timed" in idleness.finding


def test_settling_waits_for_what_was_begun(worker: Any) -> None:
    idleness = Idleness(worker.pid)
    thread = threading.Thread(target=worker.ask, args=("itself",))
    thread.start()
    time.sleep(0.005)
    idleness.settle(0.02)
    with idleness.watched():
        time.sleep(0.01)
    thread.join()
    assert idleness.used_s < 0.01


def test_settling_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, worker: Any) -> None:
    monkeypatch.setattr("harness.worker.unasked.FIRST_PATIENCE_S", 0.01)
    idleness = Idleness(worker.pid)
    thread = threading.Thread(target=worker.ask, args=("itself",))
    thread.start()
    time.sleep(0.005)
    idleness.settle(0.02)
    with idleness.watched():
        thread.join()
    assert idleness.used_s > 0.01


def test_unasked_work_is_rejected_when_it_comes_again() -> None:
    flags: list[str] = []
    trial: Any = SimpleNamespace(flag=lambda rule, *_: flags.append(rule))
    working, quiet = Measurement(unasked="works"), Measurement()
    measurements = iter([working, quiet])
    assert measured_in_quiet(trial, lambda: next(measurements)) is quiet
    assert not flags
    with pytest.raises(Verdict, match="background-work"):
        measured_in_quiet(trial, lambda: working)
    assert flags == ["background-work"]


# Works for a few milliseconds at a time, only while nobody calls, and never for long.
TAX = """
import threading
stamp = [0.0, 0]
def tax():
    while True:
        time.sleep(0.004)
        if stamp[1] >= FROM and 0.004 < time.perf_counter() - stamp[0] < 0.4:
            until = time.thread_time() + 0.004
            while time.thread_time() < until: pass
threading.Thread(target=tax, daemon=True).start()
"""
CALL = "stamp[:] = [time.perf_counter(), stamp[1] + 1]\n" + HONEST


@pytest.mark.parametrize("first", [0, 12], ids=["always", "while it is timed"])
def test_a_baseline_tax_is_rejected(evaluate: Evaluate, body: Body, norm_problem: str, first: int) -> None:
    source = body(CALL, top=TAX.replace("FROM", str(first)))
    result = evaluate(norm_problem, source, timing_budget_s=0.5)
    assert result.status == "rejected", result.reason
    assert "background-work" in result.reason
    assert "in which the reference was timed" in result.reason


POOL = "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)"
# Busy-waits for a while after each call, as some OpenMP runtimes do, and prepares something once.
SPINS = """
import threading
asked, done = threading.Event(), threading.Event()
def serve():
    until = time.monotonic() + 0.5
    while time.monotonic() < until: pass
    while True:
        asked.wait(); asked.clear(); done.set()
        until = time.monotonic() + 0.02
        while time.monotonic() < until: pass
threading.Thread(target=serve, daemon=True).start()
"""


@pytest.mark.parametrize(
    ("top", "forward"),
    [
        (POOL, "return pool.submit(torch.relu, self.ln(x)).result()"),
        ("", "return torch.cat([torch.relu(self.ln(part)) for part in x.split(8)])"),
        (SPINS, f"asked.set(); done.wait(); done.clear()\n{HONEST}"),
        (
            "import threading\ndef look():\n    while True: time.sleep(0.01)\n"
            "threading.Thread(target=look, daemon=True).start()",
            HONEST,
        ),
    ],
    ids=["pool", "operators", "spins for a while", "looks around"],
)
def test_honest_threads(evaluate: Evaluate, body: Body, norm_problem: str, top: str, forward: str) -> None:
    result = evaluate(norm_problem, body(forward, top=top), timing_budget_s=0.5)
    assert result.status == "correct", result.reason
    assert result.timed
