"""The ask/tell session: any program drives it, pending steps outlive it, what is told is durable."""

from __future__ import annotations

from typing import Any

import pytest
from search_stubs import PLACE, StubExecutor, StubGenerator, graph_of

from agent import RunStore, Search, SearchSession, SearchSettings, Step
from agent.errors import RunBusy, RunOver, StepNotPending
from agent.generator import Draft, GenerationFailed
from agent.judge import Judge
from harness.problem import load_problem
from kb.errors import StoreFull


def begin(kb: Any, path: str, **settings: Any) -> SearchSession:
    problem = load_problem(path)
    chosen = SearchSettings(path, **{"steps": 12, **settings})
    facts = StubExecutor().describe(problem.source, problem.name)
    return SearchSession.create(kb, chosen, problem, facts, generator="stub", hosted=False, place=PLACE)


def again(kb: Any, run_id: str) -> SearchSession:
    return SearchSession.resume(kb, run_id, generator="stub", hosted=False, place=PLACE)


def answer(step: Step) -> Draft | GenerationFailed:
    try:
        return StubGenerator().generate(step.request)
    except GenerationFailed as failure:
        return failure


def work(session: SearchSession, step: Step) -> None:
    """Generate, judge, tell."""
    made = answer(step)
    verdict = None
    if isinstance(made, Draft) and session.novel(step, made):
        verdict = Judge(StubExecutor(), session.settings, "p", session.problem_source).verdict(made.source)
    session.tell(step, made, verdict)


def asked(session: SearchSession, count: int) -> list[Step]:
    steps = [session.ask() for _ in range(count)]
    assert all(steps)
    return steps


def test_a_program_that_drives_it_comes_to_what_the_loop_does(kb, problem):
    whole = Search(
        kb, StubExecutor(), SearchSettings(problem, steps=12), generator=StubGenerator(), place=PLACE
    )
    expected = graph_of(kb, whole.run().run_id)
    with begin(kb, problem) as session:
        while (step := session.ask()) is not None:
            work(session, step)
        assert session.stop_reason.startswith("steps: 12 of 12")
        result = session.finish(session.progress.best)
    assert result.best.speedup == max(node.speedup for node in session.progress.graph if node.correct)
    found = graph_of(kb, session.run_id)
    # The loop verifies its winner, which is one event and another look at one node.
    assert [e[1:] for e in found[1]] == [e[1:] for e in expected[1] if e[1] != "verification"]
    assert [n[:6] for n in found[0]] == [n[:6] for n in expected[0]]
    with pytest.raises(RunOver):
        again(kb, session.run_id)


def test_steps_are_told_in_any_order_and_pending_ones_are_handed_out_again(kb, problem):
    with begin(kb, problem, steps=9, drafts=2, seed=5) as session:
        for step in asked(session, 2):
            work(session, step)
        first, second, third = asked(session, 3)
        assert session.pending == (3, 4, 5)
        with pytest.raises(RunBusy):
            again(kb, session.run_id)
        work(session, third)
        work(session, first)
        late = asked(session, 1)[0]
    events = [(e.kind, e.payload["step"]) for e in RunStore(kb).load(session.run_id).events]
    assert events[-6:] == [
        ("asked", 3), ("asked", 4), ("asked", 5), ("step", 5), ("step", 3), ("asked", 6)
    ]  # fmt: skip
    with again(kb, session.run_id) as resumed:
        assert resumed.progress.steps == 4
        for before in (second, late):
            step = resumed.ask()
            assert step.number == before.number
            assert step.selection == before.selection
            assert step.request.seed == before.request.seed
            assert step.request.tried == before.request.tried
            assert step.prompt.prompt == before.prompt.prompt
            work(resumed, step)
        while (step := resumed.ask()) is not None:
            work(resumed, step)
        resumed.finish(None)
    numbers = [e.payload["step"] for e in RunStore(kb).load(session.run_id).events if e.kind == "step"]
    assert sorted(numbers) == list(range(1, 10))
    assert numbers[:6] == [1, 2, 5, 3, 4, 6]


def test_no_more_steps_are_asked_than_the_limit_allows(kb, problem):
    with begin(kb, problem, steps=3) as session:
        steps = asked(session, 3)
        assert session.ask() is None
        assert session.stop_reason is None  # one of those might still fail to happen
        for step in steps:
            work(session, step)
        assert session.ask() is None
        assert session.stop_reason.startswith("steps")


def test_drafts_under_way_count_as_drafts(kb, problem):
    with begin(kb, problem, drafts=3) as session:
        work(session, asked(session, 1)[0])
        assert [step.selection.memory for step in asked(session, 3)][:2] == ["none", "none"]
        assert session.progress.pending[4].parent_id is not None


def test_a_step_is_told_once(kb, problem):
    with begin(kb, problem) as session:
        step = asked(session, 1)[0]
        work(session, step)
        with pytest.raises(StepNotPending):
            work(session, step)
        assert session.progress.steps == 1


def test_a_program_that_is_being_judged_is_not_judged_beside_it(kb, problem):
    draft = Draft("class ModelNew:\n    X = 50\n", "h", tokens_in=3)
    same = Draft("class ModelNew:  # renamed\n    X = 50\n", "h", tokens_in=3)
    with begin(kb, problem) as session:
        one, two = asked(session, 2)
        assert session.novel(one, draft)
        assert not session.novel(two, same)
        assert session.tell(two, same) is None
        with pytest.raises(ValueError, match="evaluation"):
            session.tell(one, draft)
        assert session.tell(one, draft, {"status": "correct", "speedup": 2.0}).fitness == 2.0
    events = RunStore(kb).load(session.run_id).events
    assert events[2].payload["error"] == "the same program as step 1"


def test_a_full_disk_loses_nothing_and_the_same_can_be_told_again(kb, problem):
    with begin(kb, problem, steps=4) as session:
        work(session, asked(session, 1)[0])
        step = asked(session, 1)[0]
        made = Draft(f"class ModelNew:\n    X = 30\n    S = '{'x' * 9000}'\n", "h" * 60_000, tokens_in=7)
        verdict = {"status": "correct", "speedup": 1.5, "log": "y" * 60_000}
        with kb.engine.connect() as connection:  # SQLite itself says that the disk is full
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreFull):
            session.tell(step, made, verdict)
        assert (session.pending, session.progress.steps) == ((2,), 1)
        with kb.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
        assert session.tell(step, made, verdict).speedup == 1.5
    stored = RunStore(kb).load(session.run_id)
    assert [n.step for n in stored.graph] == [0, 1, 2]
    assert stored.info.tokens == 12 + 7
