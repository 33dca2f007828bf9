"""What policies select, that they are deterministic, and that their state follows from what they are told."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from agent.errors import SettingsInvalid
from agent.graph import SearchGraph, SearchNode
from agent.policies import Policy, Selection, list_policies, load_policy

POLICIES = ["greedy", "evolutionary"]


def root() -> SearchNode:
    return SearchNode("root", None, 0, "problem", "", "", "root")


class World:
    """A graph and a policy that are told the same things."""

    def __init__(self, name: str, drafts: int = 2) -> None:
        self.policy: Policy = load_policy(name, drafts)
        self.graph = SearchGraph()
        self.graph.add(root())
        self.step = 0

    def ask(self, seed: int = 0) -> Selection | None:
        return self.policy.ask(self.graph, random.Random(seed))

    def tell(
        self, selection: Selection, speedup: float | None, status: str = "correct", **kwargs
    ) -> SearchNode:
        self.step += 1
        node = SearchNode(
            f"n{self.step}", selection.parent_id or "root", self.step, "g", "", "", status,
            fitness=speedup or 0.0, speedup=speedup, **kwargs,
        )  # fmt: skip
        self.graph.add(node)
        self.policy.tell(selection, node)
        return node

    def drafted(self, *speedups: float) -> None:
        for speedup in speedups:
            self.tell(self.ask(), speedup)


@pytest.mark.parametrize("name", POLICIES)
def test_independent_drafts_come_first(name):
    world = World(name, drafts=3)
    for speedup in (1.0, 2.0, 3.0):
        selection = world.ask()
        assert (selection.parent_id, selection.memory) == (None, "none")
        world.tell(selection, speedup)
    assert world.ask().parent_id is not None


def test_greedy_expands_the_best_and_sometimes_the_second():
    world = World("greedy", drafts=4)
    world.drafted(1.0, 3.0, 2.0, 0.5)
    chosen = Counter(world.ask(seed).parent_id for seed in range(400))
    assert set(chosen) == {"n2", "n3"}
    assert 0.05 < chosen["n3"] / 400 < 0.3


def test_the_intervals_lower_end_breaks_ties():
    world = World("greedy", drafts=2)
    world.tell(world.ask(), 2.0, speedup_ci=(1.2, 2.9))
    world.tell(world.ask(), 2.0, speedup_ci=(1.9, 2.1))
    chosen = Counter(world.ask(seed).parent_id for seed in range(50))
    assert chosen.most_common(1)[0][0] == "n2"


@pytest.mark.parametrize("name", POLICIES)
def test_an_exhausted_parent_is_left_alone_until_nothing_is_left(name):
    world = World(name)
    world.drafted(1.0, 2.0)
    selections = []
    for seed in range(50):
        selection = world.ask(seed)
        if selection is None:
            break
        selections.append(selection.parent_id)
        world.policy.tell(selection, None, exhausted=True)
    assert sorted(s for s in selections if s) == ["n1", "n2"]
    assert world.ask() is None


@pytest.mark.parametrize("name", POLICIES)
def test_three_fruitless_steps_close_a_parent(name):
    world = World(name, drafts=1)
    world.drafted(1.0)
    for _ in range(3):
        assert world.ask().parent_id == "n1"
        world.policy.tell(world.ask(), None)
    assert world.ask().parent_id != "n1"


@pytest.mark.parametrize("name", POLICIES)
def test_while_nothing_is_correct_failures_are_repaired_or_drafts_go_on(name):
    world = World(name)
    world.tell(world.ask(), None, "compile_error")
    world.tell(world.ask(), None, "incorrect")
    chosen = Counter(world.ask(seed).parent_id for seed in range(100))
    assert set(chosen) == {None, "n2"}  # what compiles got further than what does not
    child = world.tell(Selection("n2", "lineage", ""), None, "incorrect")
    assert world.ask(seed=1).parent_id in {None, "n1", child.node_id}  # untouched failures go before n2


@pytest.mark.parametrize("name", POLICIES)
def test_failures_are_not_expanded_once_something_is_correct(name):
    world = World(name)
    world.tell(world.ask(), None, "incorrect")
    world.tell(world.ask(), 0.7)
    assert {world.ask(seed).parent_id for seed in range(50)} == {"n2"}


def test_evolution_prefers_the_fit_but_keeps_variety():
    world = World("evolutionary", drafts=8)
    world.drafted(*[1.0 + i / 10 for i in range(8)])
    chosen = Counter(world.ask(seed).parent_id for seed in range(800))
    assert len(chosen) == 6  # the two worst lose every tournament of three
    assert chosen["n8"] > chosen["n6"] > chosen["n3"]


def test_the_population_is_bounded_and_the_displaced_wait_their_turn():
    world = World("evolutionary", drafts=12)
    world.drafted(*[1.0 + i / 10 for i in range(12)])
    assert {world.ask(seed).parent_id for seed in range(400)} <= {f"n{i}" for i in range(5, 13)}
    for i in range(5, 13):
        world.policy.tell(Selection(f"n{i}", "siblings", ""), None, exhausted=True)
    assert {world.ask(seed).parent_id for seed in range(100)} <= {f"n{i}" for i in range(1, 5)}


def test_a_disqualified_member_is_not_expanded():
    world = World("evolutionary", drafts=2)
    world.drafted(1.0, 2.0)
    world.graph.put(replace(world.graph.node("n2"), status="incorrect", fitness=0.0))
    assert {world.ask(seed).parent_id for seed in range(20)} == {"n1"}


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_telling_gives_the_same_asking(name):
    def play() -> list[str | None]:
        world, chosen = World(name, drafts=3), []
        rng = random.Random(5)
        for step in range(60):
            selection = world.ask(step)
            if selection is None:
                break
            chosen.append(selection.parent_id)
            if rng.random() < 0.2:
                world.policy.tell(selection, None, exhausted=rng.random() < 0.3)
            else:
                status = rng.choice(["correct", "correct", "incorrect"])
                world.tell(selection, rng.random() if status == "correct" else None, status)
        return chosen

    assert play() == play()


def test_policies_are_found_by_name():
    assert set(POLICIES) <= set(list_policies())
    assert all(list_policies().values())
    with pytest.raises(SettingsInvalid, match="unknown policy 'nope'") as caught:
        load_policy("nope", 1)
    assert "greedy" in caught.value.hint
