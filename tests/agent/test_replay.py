"""The answers of a recorded run, asked again."""

from __future__ import annotations

from typing import Any

import pytest
from search_stubs import PLACE, StubExecutor, StubGenerator

from agent import RunStore, Search, SearchSettings
from agent.errors import RunNotFound, SettingsInvalid


def recorded(kb: Any, problem: str, **settings: Any) -> str:
    chosen = SearchSettings(problem, **{"steps": 20, "seed": 1, **settings})
    return Search(kb, StubExecutor(), chosen, generator=StubGenerator(), place=PLACE).run().run_id


def course(kb: Any, run_id: str) -> list[Any]:
    run = RunStore(kb).load(run_id)
    nodes = {n.node_id: n for n in run.graph}
    found = []
    for payload in (event.payload for event in run.events if event.kind == "step"):
        node = nodes.get(payload.get("node_id", ""))
        made = node and (node.source_sha, node.hypothesis, node.genome, node.status)
        error = payload.get("error", "").replace(run_id, "")
        found.append((payload["outcome"], payload["selected"], error, made))
    return found


def test_a_replayed_run_takes_the_same_course_and_costs_nothing(kb: Any, problem: str) -> None:
    first = recorded(kb, problem)
    settings = SearchSettings(problem, steps=20, seed=1, generator=f"replay:{first}")
    result = Search(kb, StubExecutor(), settings, place=PLACE).run()
    assert course(kb, result.run_id) == course(kb, first)
    assert {outcome for outcome, *_ in course(kb, first)} >= {"evaluated", "no_candidate"}
    assert result.tokens == 0
    assert result.cost_usd == 0


def test_a_run_stops_where_its_recording_ends(kb: Any, problem: str) -> None:
    first = recorded(kb, problem, steps=5)
    settings = SearchSettings(problem, steps=20, seed=1, generator="replay:last")
    result = Search(kb, StubExecutor(), settings, place=PLACE).run()
    assert result.stop_reason == f"exhausted: replay:{first} has no step 6: it has 5"
    assert RunStore(kb).load("last").settings.generator == f"replay:{first}", "last may be another one later"


def test_what_is_not_there_cannot_be_replayed(kb: Any, problem: str) -> None:
    with pytest.raises(RunNotFound):
        Search(kb, StubExecutor(), SearchSettings(problem, generator="replay:nope"), place=PLACE)
    with pytest.raises(SettingsInvalid, match="needs a run"):
        Search(kb, StubExecutor(), SearchSettings(problem, generator="replay:"), place=PLACE)
