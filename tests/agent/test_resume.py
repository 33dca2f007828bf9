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

KILLS = 10


def start(home: Path, log: Path, settings: SearchSettings) -> subprocess.Popen[bytes]:
    command = [sys.executable, search_stubs.__file__, str(home), str(log), json.dumps(asdict(settings))]
    return subprocess.Popen(command, start_new_session=True)


def judged(log: Path) -> list[list[object]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.parametrize("policy", ["evolutionary"])
def test_killed_ten_times_and_resumed(tmp_path, policy):
    settings = SearchSettings(str(write_problem(tmp_path)), policy=policy, steps=120, seed=11)
    with open_kb(tmp_path / "whole") as kb:
        whole = Search(kb, StubExecutor(), settings, generator=StubGenerator(), place=PLACE).run()
        expected = graph_of(kb, whole.run_id)

    rng = random.Random(time.time_ns())
    home, log = tmp_path / "killed", tmp_path / "log"
    for kill in range(KILLS):
        before = len(judged(log))
        process = start(home, log, settings)
        deadline = time.monotonic() + 60
        # The first judged candidate shows that the run is under way; from then on any moment will do.
        while len(judged(log)) == before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.12))
        assert process.poll() is None, f"the run was over before kill {kill}"
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        with open_kb(home) as kb:
            (run,) = RunStore(kb).list_runs()
            nodes = RunStore(kb).load(run.run_id).graph.candidates()
            assert run.state == "running"
            # At most the step in flight is missing of what was judged.
            assert len(nodes) >= len({x for x, _ in judged(log)}) - 1

    assert start(home, log, settings).wait(timeout=120) == 0
    with open_kb(home) as kb:
        (run,) = RunStore(kb).list_runs()
        assert graph_of(kb, run.run_id) == expected
    repeated = sum(n - 1 for n in Counter(x for x, final in judged(log) if not final).values())
    assert repeated <= KILLS
