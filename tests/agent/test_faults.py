"""What goes wrong around a search: clocks, disks, numbers, neighbours. Nothing finished is lost by it."""

from __future__ import annotations

import json
import shutil
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from search_stubs import PLACE, StubExecutor, StubGenerator, graph_of, open_kb

from agent import RunStore, Search, SearchSettings, store
from agent.events import Generated
from agent.generator import Draft
from kb import tables
from kb.errors import StoreFull


def run(kb: Any, problem: str, **parts: Any) -> str:
    settings = SearchSettings(problem, **{"steps": 10, "seed": 3, **parts.pop("settings", {})})
    given = {"generator": StubGenerator(), "place": PLACE, **parts}
    return Search(kb, given.pop("executor", StubExecutor()), settings, **given).run().run_id


def test_a_clock_that_jumps_changes_nothing(kb, problem, monkeypatch):
    expected = graph_of(kb, run(kb, problem))
    real, seconds, offset = tables.now, time.time, [0.0]

    def jump(event: Any) -> None:
        if isinstance(event, Generated):
            offset[0] += 86_400.0 * (-3 if event.step % 2 else 2)

    def now() -> Any:
        return real() + timedelta(seconds=offset[0])

    for module in (store, tables):
        monkeypatch.setattr(module, "now", now)
    monkeypatch.setattr(time, "time", lambda: seconds() + offset[0])
    settings = {"time_limit_s": 3600.0}
    found = run(kb, problem, on_event=jump, settings=settings)
    assert offset[0] < -86_400
    assert graph_of(kb, found) == expected
    result = RunStore(kb).result(found)
    assert 0 < result.elapsed_s < 600
    # The clock is days behind now, and still the last run is the last.
    offset[0] = -10 * 86_400.0
    assert RunStore(kb).resolve("last") == found
    newest = run(kb, problem, settings={"steps": 1})
    assert RunStore(kb).resolve("last") == newest
    assert RunStore(kb).list_runs()[0].run_id == newest


def test_a_full_disk_ends_a_run_that_goes_on_when_there_is_room(kb, problem):
    expected = graph_of(kb, run(kb, problem))

    def pages(limit: int | None) -> None:
        with kb.engine.connect() as connection:
            used = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {limit or used}")

    def fill(event: Any) -> None:
        if isinstance(event, Generated) and event.step == 5:
            pages(None)  # SQLite answers "database or disk is full" as soon as it needs another page

    with pytest.raises(StoreFull):
        run(kb, problem, on_event=fill)
    pages(1_000_000)
    interrupted = RunStore(kb).list_runs()[0]
    assert 4 <= interrupted.steps < 10
    Search.resume(kb, StubExecutor(), interrupted.run_id, generator=StubGenerator(), place=PLACE)
    assert graph_of(kb, interrupted.run_id) == expected


def test_numbers_of_a_generator_that_are_none_do_not_spread(kb, problem):
    class Odd(StubGenerator):
        def generate(self, request: Any) -> Draft:
            x = 20 + request.step
            notes = {"share": float("nan"), "nested": {"list": [1.0, float("inf")]}}
            source = f"class ModelNew:\n    X = {x}\n"
            return Draft(source, "h", cost_usd=float("nan"), tokens_in=5, notes=notes)

    found = run(kb, problem, generator=Odd(), settings={"steps": 4, "max_cost_usd": 1.0})
    stored = RunStore(kb).load(found)
    assert stored.info.stop_reason.startswith("cost: a step has no known price")
    for node in stored.graph.candidates():
        json.dumps(node.notes, allow_nan=False)
    for event in stored.events:
        json.dumps(event.payload, allow_nan=False)


def test_two_searches_share_a_store(tmp_path: Path, empty_home: Path, problem: str):
    def search(home: Path, seed: int, found: dict[int, Any]) -> None:
        with open_kb(home) as knowledge:
            run_id = run(knowledge, problem, settings={"seed": seed, "concurrency": 1})
            found[seed] = graph_of(knowledge, run_id)

    shutil.copytree(empty_home, tmp_path / "shared")
    shutil.copytree(empty_home, tmp_path / "alone")
    together: dict[int, Any] = {}
    threads = [threading.Thread(target=search, args=(tmp_path / "shared", s, together)) for s in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone: dict[int, Any] = {}
    for seed in (1, 2):
        search(tmp_path / "alone", seed, alone)
    assert together == alone
