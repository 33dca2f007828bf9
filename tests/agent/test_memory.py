"""What a prompt is told of earlier attempts, by operator, and what is remembered as not working."""

from __future__ import annotations

from typing import Any

import pytest

from agent.graph import SearchGraph, SearchNode
from agent.memory import NegativeMemory, avoidance, failed_attempts, lessons


def node(
    step: int, parent: int | None, status: str = "correct", speedup: float = 0.0, **more: Any
) -> SearchNode:
    return SearchNode(
        str(step), None if parent is None else str(parent), step, "g", "", str(step), status,
        fitness=speedup, speedup=speedup or None, hypothesis=f"idea {step}", **more,
    )  # fmt: skip


@pytest.fixture
def graph() -> SearchGraph:
    """root → 1 (fails) → 2 → 4 (faster), 5 (slower), 6 (fails); root → 3."""
    graph = SearchGraph()
    for item in (
        node(0, None, "root"),
        node(1, 0, "incorrect", diagnosis={"error": "off by one"}),
        node(2, 1, speedup=1.5, notes={"verdict": {"word": "confirmed", "text": "confirmed: as predicted"}}),
        node(3, 0, speedup=1.1),
        node(4, 2, speedup=2.0),
        node(5, 2, speedup=1.2),
        node(6, 2, "timeout"),
    ):
        graph.add(item)
    return graph


@pytest.mark.parametrize(
    ("memory", "failed", "learnt"),
    [("none", [], []), ("lineage", [1], [2]), ("siblings", [5, 6], [4]), ("both", [1, 5, 6], [2, 4])],
)
def test_each_operator_tells_its_part(graph, memory, failed, learnt):
    assert [entry["step"] for entry in failed_attempts(graph, [], "2", memory)] == failed
    assert [entry["step"] for entry in lessons(graph, "2", memory)] == learnt


def test_a_lesson_is_the_hypothesis_with_its_verdict(graph):
    (lesson,) = lessons(graph, "2", "lineage")
    assert (lesson["hypothesis"], lesson["verdict"]) == ("idea 2", "1.50x eager; confirmed: as predicted")


def test_a_strategy_that_failed_again_is_told_once():
    memory = NegativeMemory()
    broken = {"error": "no such intrinsic"}
    memory.tell(node(1, 0, "timeout"))
    memory.tell(node(2, 0, "compile_error", diagnosis=broken), "r1")
    memory.tell(node(3, 0, "compile_error", diagnosis=broken))
    memory.tell(node(4, 0, speedup=0.9, notes={"verdict": {"word": "refuted", "text": "refuted: slower"}}))
    memory.tell(node(5, 0, speedup=1.9, notes={"verdict": {"word": "open", "text": "open"}}))
    memory.tell(node(6, 0, "incorrect", compiler_made=True))
    memory.tell(node(7, 0, "harness_error"))
    told = [(entry["step"], entry["outcome"], entry["times"]) for entry in memory.entries()]
    assert told == [(3, "compile_error", 2), (4, "refuted", 1), (1, "timeout", 1)]
    assert [entry["step"] for entry in memory.entries(told={3, 4})] == [1]


def test_an_entry_says_what_why_and_where():
    memory = NegativeMemory()
    memory.tell(
        node(2, 0, "compile_error", diagnosis={"error": "no such intrinsic"}, notes={"local_only": True}),
        "r1",
    )
    (entry,) = map(avoidance, memory.entries())
    assert entry == {
        "strategy": "idea 2",
        "why": "compile_error (run r1): no such intrinsic",
        "origin": "run r1",
        "local_only": True,
    }
