"""What all processes of a candidate use together is limited, and a candidate that is ended so is told why."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Evaluation
from harness.worker.jail.watch import tree

SCRIPT = """
import mmap, os, sys, time
from harness.worker.jail.processes import fork_child, kill_descendants
from harness.worker.jail.sandbox import adopt_orphans
from harness.worker.jail.watch import Watch
adopt_orphans()

def run(channel):
    for _ in range(4):
        if os.fork() == 0:
            exec(sys.argv[1])
            time.sleep(60)
    channel.receive()

child = fork_child(run)
Watch(child, 100 << 20, 0.7, 40).start()
start = time.monotonic()
while child.condemned is None and time.monotonic() - start < float(sys.argv[2]):
    time.sleep(0.05)
print(child.condemned)
kill_descendants()
"""


@pytest.mark.parametrize(
    ("each", "verdict"),
    [
        ("block = b'x' * (30 << 20)", "('memory', 'its processes held"),
        ("m = mmap.mmap(-1, 30 << 20); m.write(b'x' * (30 << 20))", "('memory', 'its processes held"),
        (
            "os.setsid(); end = time.monotonic() + 5\\nwhile time.monotonic() < end: pass",
            "('timeout', 'used ",
        ),
    ],
)
def test_each_is_modest_and_all_are_too_much(each: str, verdict: str, repository: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, each.replace("\\n", "\n"), "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=repository)
    assert done.stdout.startswith(verdict), done.stderr


def test_memory_that_children_share_counts_once(repository: Path) -> None:
    """Forked workers each seem to hold what the parent had allocated before."""
    script = SCRIPT.replace("def run(channel):", "def run(channel):\n    block = b'x' * (50 << 20)")
    command = [sys.executable, "-c", script, "pass", "1.5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=repository)
    assert done.stdout == "None\n", done.stderr


def test_the_verdict_names_the_reason(
    evaluate: Callable[..., Evaluation], norm_problem: str, body: Callable[..., str]
) -> None:
    hungry = """
import mmap
for _ in range(6):
    if os.fork() == 0:
        held = mmap.mmap(-1, 250 << 20)
        held.write(b"x" * (250 << 20))
        time.sleep(30)
time.sleep(20)"""
    evaluation = evaluate(norm_problem, body(top=hungry), memory_limit=1 << 30)
    assert evaluation.status == "runtime_error"
    assert evaluation.reason.startswith("over the memory limit of 1 GiB: its processes held")


@pytest.mark.full
def test_a_fork_bomb_ends(
    evaluate: Callable[..., Evaluation], norm_problem: str, body: Callable[..., str]
) -> None:
    """Also of root, whom the kernel's own limit does not bind."""
    bomb = """
for _ in range(1500):
    if os.fork() == 0:
        time.sleep(30)
        os._exit(0)
time.sleep(20)"""
    evaluation = evaluate(norm_problem, body(top=bomb))
    assert evaluation.status == "runtime_error", evaluation.reason
    assert "1024" in evaluation.reason or "Resource temporarily unavailable" in evaluation.reason


def test_tree_has_what_any_thread_started() -> None:
    children: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: children.append(subprocess.Popen(["/bin/sleep", "20"])))
    thread.start()
    thread.join()
    try:
        assert {os.getpid(), children[0].pid} <= set(tree(os.getpid()))
    finally:
        children[0].kill()
        children[0].wait()
    assert children[0].pid not in tree(os.getpid())
    assert tree(children[0].pid) == {}
