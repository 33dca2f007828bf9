from __future__ import annotations

import pytest

from agent.graph import SearchGraph, SearchNode, fitness_of


def node(name: str, parent: str | None, speedup: float | None = None, **kwargs) -> SearchNode:
    status = "root" if parent is None else "correct" if speedup is not None else "incorrect"
    step = 0 if parent is None else int(name[1:])
    return SearchNode(
        name, parent, step, "g", "", "", status, fitness=speedup or 0.0, speedup=speedup, **kwargs
    )


def graph(*nodes: SearchNode) -> SearchGraph:
    made = SearchGraph()
    for item in (node("n0", None), *nodes):
        made.add(item)
    return made


def test_lineage_children_and_best():
    g = graph(node("n1", "n0", 1.0), node("n2", "n1", 2.0), node("n3", "n1"), node("n4", "n2", 1.5))
    assert [n.node_id for n in g.lineage("n4")] == ["n2", "n1", "n0"]
    assert [n.node_id for n in g.children("n1")] == ["n2", "n3"]
    assert g.best().node_id == "n2"
    assert [n.node_id for n in g.ranking()] == ["n2", "n4", "n1"]
    assert g.root.node_id == "n0"


def test_the_compilers_code_ranks_last():
    g = graph(node("n1", "n0", 5.0, compiler_made=True), node("n2", "n0", 0.8))
    assert g.best().node_id == "n2"


def test_of_equals_the_earlier_is_best():
    assert graph(node("n1", "n0", 2.0), node("n2", "n0", 2.0)).best().node_id == "n1"


def test_a_later_look_may_change_which_is_best():
    g = graph(node("n1", "n0", 1.0), node("n2", "n0", 2.0), node("n3", "n2"))
    g.put(node("n2", "n0"))
    assert g.best().node_id == "n1"
    g.put(node("n3", "n2", 3.0))
    assert g.best().node_id == "n3"


@pytest.mark.parametrize("bad", [node("n1", "n0", 1.0), node("n2", "n9"), node("n7", None)])
def test_what_does_not_fit_is_refused(bad):
    with pytest.raises(ValueError, match="node"):
        graph(node("n1", "n0", 1.0), bad)


@pytest.mark.parametrize(
    ("evaluation", "fitness"),
    [
        ({"status": "correct", "speedup": 1.5}, 1.5),
        ({"status": "incorrect", "speedup": 1.5}, 0.0),
        ({"status": "compiled", "speedup": None}, 0.0),
        ({"status": "correct", "speedup": None, "cost": 4.0}, 0.25),
        ({"status": "correct", "speedup": None}, 0.0),
        ({"status": "correct", "speedup": float("nan")}, 0.0),
        ({"status": "correct", "speedup": float("inf")}, 0.0),
        ({"status": "correct", "speedup": -1.0}, 0.0),
    ],
)
def test_fitness(evaluation, fitness):
    assert fitness_of(evaluation) == fitness
