"""`kill -9` at any moment: nothing finished is lost or counted twice; the run ends as if never killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest
import search_stubs
from search_stubs import PLACE, StubExecutor, StubGenerator, graph_of, open_kb, write_problem

from agent import RunStore, Search, SearchSettings
from agent.recorded import replay
from kb.errors import QuotaExceeded

# What a process has begun to do when its last moments are counted: making the run, a step, the verification.
MOMENTS = ["create"] * 3 + ["step"] * 8 + ["final"] * 2


def start(home: Path, log: Path, settings: SearchSettings) -> subprocess.Popen[bytes]:
    command = [sys.executable, search_stubs.__file__, str(home), str(log), json.dumps(asdict(settings))]
    return subprocess.Popen(command, start_new_session=True)


def begun(log: Path, moment: str) -> list[object]:
    """What was begun at such moments, in order."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    named = [("create" if x == "describe" else "final" if final else "step", x) for x, final in lines]
    return [x for name, x in named if name == moment]


def kill_at(moment: str, process: subprocess.Popen[bytes], log: Path, delay_s: float) -> None:
    before = begun(log, moment)
    deadline = time.monotonic() + 60
    while begun(log, moment) == before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(delay_s)
    # A verification is short: the run may be over by then.
    assert process.poll() is None or (moment == "final" and process.poll() == 0), f"over before {moment}"
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() in (-signal.SIGKILL, 0)


@pytest.mark.parametrize("policy", ["evolutionary"])
def test_killed_again_and_again_and_resumed(tmp_path, policy):
    settings = SearchSettings(str(write_problem(tmp_path)), policy=policy, steps=120, seed=11)
    with open_kb(tmp_path / "whole") as kb:
        whole = Search(kb, StubExecutor(), settings, generator=StubGenerator(), place=PLACE).run()
        expected = graph_of(kb, whole.run_id)

    seed = time.time_ns()
    sys.stderr.write(f"seed {seed}\n")  # shown when the test fails
    rng = random.Random(seed)
    home, log = tmp_path / "killed", tmp_path / "log"
    exists = False
    for planned in MOMENTS:
        moment = "step" if exists and planned == "create" else planned
        kill_at(moment, start(home, log, settings), log, rng.uniform(0, 0.12 if moment == "step" else 0.03))
        with open_kb(home) as kb:
            runs = RunStore(kb).list_runs()
            assert len(runs) == 1 or (moment == "create" and not runs)
            exists = bool(runs)
            nodes = RunStore(kb).load("last").graph.candidates() if runs else []
            assert all(run.state == "running" or moment == "final" for run in runs)
            # At most the step in flight is missing of what was judged.
            assert len(nodes) >= len(set(begun(log, "step"))) - 1

    assert start(home, log, settings).wait(timeout=120) == 0
    with open_kb(home) as kb:
        (run,) = RunStore(kb).list_runs()
        assert graph_of(kb, run.run_id) == expected
    repeated = sum(n - 1 for n in Counter(begun(log, "step")).values())
    assert repeated <= len(MOMENTS)


def test_killed_with_several_steps_under_way(tmp_path):
    problem = str(write_problem(tmp_path))
    settings = SearchSettings(problem, policy="evolutionary", steps=60, seed=3, concurrency=3)
    home, log = tmp_path / "home", tmp_path / "log"
    rng = random.Random(time.time_ns())
    told: list[int] = []
    for _ in range(4):
        kill_at("step", start(home, log, settings), log, rng.uniform(0, 0.12))
        with open_kb(home) as kb:
            run = RunStore(kb).load("last")
            now = [e.payload["step"] for e in run.events if e.kind == "step"]
        assert now[: len(told)] == told
        told = now
    assert start(home, log, settings).wait(timeout=120) == 0
    with open_kb(home) as kb:
        run = RunStore(kb).load("last")
        assert replay(kb, "last").divergences == ()
    events = [(e.kind, e.payload["step"]) for e in run.events if e.kind in ("asked", "step")]
    assert sorted(events) == sorted((kind, n) for kind in ("asked", "step") for n in range(1, 61))
    assert run.info.state == "finished"
    assert sum(n - 1 for n in Counter(begun(log, "step")).values()) <= 4 * 3


def test_a_quota_stops_before_the_next_step_and_more_room_goes_on(tmp_path):
    problem = str(write_problem(tmp_path))
    settings = SearchSettings(problem, steps=6, seed=3)
    with open_kb(tmp_path / "whole") as kb:
        whole = Search(kb, StubExecutor(), settings, generator=StubGenerator(), place=PLACE).run()
        expected = graph_of(kb, whole.run_id)
    with open_kb(tmp_path / "home") as kb:
        used = sum(f.stat().st_size for f in (tmp_path / "home").rglob("*") if f.is_file())
        kb.settings = kb.settings.model_copy(update={"quota": used + 1_300_000})
        with pytest.raises(QuotaExceeded, match="of its quota"):
            Search(kb, StubExecutor(), settings, generator=StubGenerator(), place=PLACE).run()
        run_id = RunStore(kb).list_runs()[0].run_id
        assert 1 < len(graph_of(kb, run_id)[0]) < len(expected[0])
        kb.settings = kb.settings.model_copy(update={"quota": None})
        Search.resume(kb, StubExecutor(), run_id, generator=StubGenerator(), place=PLACE)
        assert graph_of(kb, run_id)[0] == expected[0]
