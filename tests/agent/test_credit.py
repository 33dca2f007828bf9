"""What a candidate's result says of what its prompt showed, and that it is stored with the step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlmodel import select

from agent import Search, SearchSettings
from agent.credit import earned, shares
from agent.graph import SearchNode
from kb.records import SkillRecord
from kb.tables import Credit, Event, PromptUse
from prompts.record import PromptRecord, Provenance


def node(status: str = "correct", fitness: float = 1.0, **kwargs: Any) -> SearchNode:
    return SearchNode("n", "p", 1, "stub", "", "", status, fitness, **kwargs)


@pytest.mark.parametrize(
    ("child", "parent", "amount"),
    [
        (node(fitness=2.0), node(fitness=1.0), 1.0),
        (node(fitness=1.0), node(fitness=2.0), -1.0),
        (node(fitness=9.0), node(fitness=1.0), 1.0),
        (node(fitness=1.3), node(fitness=1.3), 0.0),
        (node(fitness=2.0), None, 1.0),
        (node(fitness=0.5), None, -1.0),
        (node("incorrect", 0.0), node(fitness=1.0), -0.5),
        (node("timeout", 0.0), None, -0.5),
        (node("compile_error", 0.0), node("incorrect", 0.0), -0.25),
        (node(fitness=0.6), node("incorrect", 0.0), 0.25),
        (node(fitness=0.0), node("incorrect", 0.0), 0.25),
        (node(fitness=0.0), node(fitness=1.0), None),
        (node("harness_error", 0.0), node(fitness=1.0), None),
        (node("compiled", 0.0), None, None),
        (node(fitness=3.0, compiler_made=True), None, None),
    ],
)
def test_earned(child: SearchNode, parent: SearchNode | None, amount: float | None) -> None:
    assert earned(child, parent) == (pytest.approx(amount) if amount is not None else None)


def test_who_was_used_gets_more() -> None:
    skill = SkillRecord("s", "s", "2", "", "cpu", "cpp", None, {}, "", [], chunk_id="c2")  # type: ignore[arg-type]
    prompt = PromptRecord(
        "", 0, {}, [Provenance("skills", c, "", 1.0) for c in ("c1", "c2")], "", skills=[skill]
    )
    assert shares(prompt, ()) == {"c1": 1.0, "skill:s@2": 1.0}
    assert shares(prompt, ("s", "c2")) == {"c1": 0.25, "skill:s@2": 1.0}


def test_a_search_credits_what_it_showed(kb, problem, tmp_path):
    from search_stubs import PLACE, StubExecutor, StubGenerator

    from ingest import ingest_paths

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("# Plus one\n\nplus one kernel overview: fast on cpu\n")
    ingest_paths(kb, [tmp_path / "docs"])
    settings = SearchSettings(problem, steps=6, drafts=2)
    Search(kb, StubExecutor(), settings, generator=StubGenerator(), place=replace(PLACE)).run()
    with kb.session() as session:
        used = set(session.exec(select(PromptUse.chunk_id)).all())
        amounts = [e.payload.get("credit") for e in session.exec(select(Event).where(Event.kind == "step"))]
        rows = {row.subject: row for row in session.exec(select(Credit)).all()}
    counted = [amount for amount in amounts if amount is not None]
    assert used
    assert counted
    assert set(rows) == used | {""}
    assert rows[""].uses == len(counted)
    assert rows[""].total == pytest.approx(sum(counted), abs=0.05)
