"""Children die with all their descendants, with and without namespaces; nothing is believed from a broken
channel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.worker.wire import Channel, Closed, Late, WireError, channel_pair

# In a process of its own: it becomes a subreaper and forks.
SCRIPT = """
import os, sys, time
from harness.worker.jail import sandbox
from harness.worker.jail.processes import fork_jailed, kill_descendants
if sys.argv[1] == "none":
    sandbox._unshare = lambda flag: "not permitted here"

def run(channel, report):
    for _ in range(2):  # one child in a session of its own, one orphan
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execv("/bin/sleep", [sys.argv[2], "60"])
            os._exit(0)
    time.sleep(0.3)
    channel.send({"report": report})
    if sys.argv[3] == "dies":
        os._exit(1)
    channel.receive()

child = fork_jailed(run)
child.log.start()
report = child.channel.receive(20)["report"]
if sys.argv[3] == "dies":
    child.exit_status(5)
start = time.monotonic()
kill_descendants()
print(report["pid-namespace"], time.monotonic() - start < 5)
"""


@pytest.mark.parametrize("end", ["waits", "dies"])
@pytest.mark.parametrize("namespaces", ["all", "none"])
def test_kill_reaches_every_descendant(namespaces: str, end: str, repository: Path) -> None:
    name = f"ke-sleeper-{namespaces}-{end}-{os.getpid()}"
    command = [sys.executable, "-c", SCRIPT, namespaces, name, end]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=repository)
    assert done.stdout.strip().endswith("True"), done.stderr
    if namespaces == "none":
        assert "not permitted here" in done.stdout
    time.sleep(0.1)
    assert (
        name not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    )


def test_frames_with_limits_and_deadlines() -> None:
    ours, theirs = channel_pair()
    ours.send({"a": [1, 2.5, None, "ü"]})
    assert theirs.receive(1.0) == {"a": [1, 2.5, None, "ü"]}
    with pytest.raises(Late):
        theirs.receive(0.05)
    ours.send({"long": "x" * 70_000})
    with pytest.raises(WireError, match="longer than the limit"):
        theirs.receive(1.0)
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    "junk", [b"\x05\0\0\0nope!", b"\x04\0\0\0null", b"\x02\0\0\0[]", b"\x08\0\0\0" + b"[" * 8]
)
def test_junk_is_no_message(junk: bytes) -> None:
    ours, theirs = channel_pair()
    ours.sock.sendall(junk)
    with pytest.raises(WireError):
        theirs.receive(1.0)


def test_half_a_frame_then_silence_or_end() -> None:
    ours, theirs = channel_pair()
    ours.sock.sendall(b"\x10\0\0\0{")
    with pytest.raises(Late):
        theirs.receive(0.05)
    ours.close()
    with pytest.raises(Closed):
        Channel(theirs.sock).receive(1.0)


def test_number_of_processes_is_limited(repository: Path) -> None:
    script = """
import resource
from harness.worker.jail import sandbox
report = {}
tasks = sandbox.user_tasks() + 50
sandbox.limit_resources(report, 1 << 30, tasks)
print(report["limits"] == "" and tasks > 50, resource.getrlimit(resource.RLIMIT_NPROC) == (tasks, tasks))
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=repository)
    assert done.stdout.split() == ["True", "True"], done.stderr
