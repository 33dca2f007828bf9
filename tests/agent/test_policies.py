"""What holds for every policy: phases, determinism, concurrency, ends, and speed on large graphs."""

from __future__ import annotations

import random
import runpy
import time
from collections import Counter
from pathlib import Path

import pytest
from policy_world import World
from search_stubs import PLACE, StubExecutor, StubGenerator

from agent import Search, SearchSettings
from agent.errors import SettingsInvalid
from agent.graph import SearchGraph, SearchNode
from agent.policies import Outcome, Selection, list_policies, load_policy
from agent.recorded import replay

EXPANDING = ["greedy", "beam", "mcts", "evolutionary", "linear"]
EXAMPLES = Path(__file__).parents[2] / "examples" / "policies"
POLICIES = [*EXPANDING, "idea-first", "one-shot"]
# One chain, or one question, at a time.
WAITING = {"linear", "idea-first"}


def far(x: float) -> float:
    """What drafts reach, around 0, is a third of the best, which is at 8; one step in five fails."""
    return 0.0 if int(abs(x) * 1e6) % 5 == 0 else 3.0 / (1.0 + (x - 8) ** 2 / 32)


def play(name: str, seed: int, flight: int, steps: int = 120) -> World:
    """Random outcomes of all kinds, several steps in flight; checks each ask against a rebuilt policy."""
    world, rng = World(name, drafts=3), random.Random(seed)
    pending: list[Selection] = []
    for number in range(steps):
        while len(pending) < flight:
            selection = world.ask(number * 100 + len(pending), tuple(pending))
            assert selection == world.ask(number * 100 + len(pending), tuple(pending)), (
                "asking changes nothing"
            )
            if selection is None:
                break
            pending.append(selection)
        if not pending:
            break
        selection = pending.pop(rng.randrange(len(pending)))
        kind = rng.random()
        if selection.want_ideas and kind < 0.8:
            world.told(selection, Outcome(ideas=tuple(f"{rng.random()} {rng.random()}" for _ in range(6))))
        elif kind < 0.25:
            world.nothing(selection, exhausted=rng.random() < 0.3)
        else:
            status = rng.choice(["correct", "correct", "incorrect", "timeout", "harness_error"])
            kinds = {"bottleneck": rng.choice(["memory", "compute"])}
            speedup = round(rng.random(), 1) if status == "correct" else None
            world.tell(selection, speedup, status, diagnosis=kinds)
    return world


@pytest.mark.parametrize("name", EXPANDING)
def test_independent_drafts_come_first(name):
    world = World(name, drafts=3)
    for speedup in (1.0, 2.0, 3.0):
        selection = world.ask()
        assert (selection.parent_id, selection.memory) == (None, "none")
        world.tell(selection, speedup)
    assert world.ask().parent_id is not None


@pytest.mark.parametrize("flight", [1, 7])
@pytest.mark.parametrize("name", POLICIES)
def test_telling_the_same_again_rebuilds_the_policy(name, flight):
    for seed in range(4):
        world = play(name, seed, flight)
        again = world.rebuilt()
        for number in range(20):
            pending = (Selection("n1", "both", "", 0),) * (number % 3)
            assert again.ask(world.graph, random.Random(number), pending) == world.ask(number, pending)


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_seeds_give_the_same_run(name):
    assert play(name, 3, 5).log == play(name, 3, 5).log


@pytest.mark.parametrize("name", POLICIES)
def test_a_run_ends_when_nothing_has_more_to_give(name):
    world, told = World(name, drafts=4), 0
    while (selection := world.ask(told)) is not None:
        told += 1
        assert told < 200
        if told <= 12 and selection.want_ideas:
            world.told(selection, Outcome(ideas=("tile it", "fuse all", "vectors", "threads")))
        elif told <= 12:
            world.tell(selection, float(told))
        else:
            world.nothing(selection, exhausted=True)
    assert told > 12
    assert world.ask(99) is None


@pytest.mark.parametrize("name", ["greedy", "beam", "evolutionary", "linear"])
def test_three_fruitless_steps_close_a_parent(name):
    world = World(name, drafts=1)
    world.drafted(1.0)
    for _ in range(3):
        assert world.ask().parent_id == "n1"
        world.nothing(world.ask())
    assert world.ask().parent_id != "n1"


@pytest.mark.parametrize("name", ["greedy", "beam", "evolutionary"])
def test_while_nothing_is_correct_failures_are_repaired_or_drafts_go_on(name):
    world = World(name)
    world.tell(world.ask(), None, "compile_error")
    world.tell(world.ask(), None, "incorrect")
    chosen = Counter(world.ask(seed).parent_id for seed in range(100))
    assert set(chosen) == {None, "n2"}  # what compiles got further than what does not
    child = world.tell(Selection("n2", "lineage", "", 1), None, "incorrect")
    assert world.ask(seed=1).parent_id in {None, "n1", child.node_id}  # untouched failures go before n2
    world.tell(world.ask(), 0.7)
    assert {world.ask(seed).parent_id for seed in range(50)} == {f"n{world.step}"}


@pytest.mark.parametrize("name", POLICIES)
def test_no_slot_waits_without_need(name):
    world, pending = World(name, drafts=2), []
    for number in range(9):
        selection = world.ask(number, tuple(pending))
        if selection is None:
            break
        pending.append(selection)
    assert len(pending) == 9 or name == "idea-first"  # nothing is judged yet: only drafts can be had
    if name in WAITING:
        return
    world.tell(pending.pop(), 1.0)
    assert world.ask(1, tuple(pending)) is not None


@pytest.mark.parametrize("name", POLICIES)
def test_drafts_in_flight_are_counted(name):
    world = World(name, drafts=3)
    if name in {"one-shot", "idea-first"}:
        pytest.skip("drafts have no phase of their own")
    world.drafted(1.0)
    flying = (Selection(None, "none", ""),) * 2
    assert world.ask(0, flying[:1]).parent_id is None
    later = world.ask(0, flying)
    assert later is None if name == "linear" else later.parent_id == "n1"


@pytest.mark.parametrize("name", ["greedy", "beam", "mcts", "evolutionary"])
def test_steps_in_flight_spread_over_the_graph(name):
    world = World(name, drafts=6)
    world.drafted(1.0, 1.5, 1.1, 1.4, 1.2, 1.3)
    pending: list[Selection] = []
    for number in range(12):
        pending.append(world.ask(number, tuple(pending)))
    counts = Counter(selection.parent_id for selection in pending)
    assert len(counts) >= 4
    assert max(counts.values()) <= 5


@pytest.mark.parametrize("flight", [1, 8])
@pytest.mark.parametrize("name", [*EXPANDING, "idea-first"])
def test_expansion_beats_drafts(name, flight):
    blind = [World("one-shot", drafts=4).search(far, 120, seed, flight) for seed in range(6)]
    best = [World(name, drafts=4).search(far, 120, seed, flight) for seed in range(6)]
    assert sum(best) > (1.05 if name == "linear" else 1.3) * sum(blind)


@pytest.mark.parametrize("name", POLICIES)
def test_a_graph_of_20_000_nodes_is_asked_in_milliseconds(name):
    policy, rng, graph = load_policy(name, 4), random.Random(0), SearchGraph()
    graph.add(SearchNode("root", None, 0, "problem", "", "", "root"))
    ids: list[str] = []
    for step in range(1, 20_001):
        parent = None if step < 50 or rng.random() < 0.01 else rng.choice(ids[-200:])
        correct = rng.random() < 0.7
        node = SearchNode(
            f"n{step}", parent or "root", step, "g", "", "", "correct" if correct else "incorrect",
            fitness=rng.random() if correct else 0.0, diagnosis={"bottleneck": f"b{step % 50}"},
        )  # fmt: skip
        graph.add(node)
        ids.append(node.node_id)
        idea = f"idea {step}" if name == "idea-first" else ""
        policy.tell(Selection(parent, "both", "", step % 4, idea=idea), Outcome(node))
        if step % 40 == 0:  # some are spent, the best among them
            best = max(ids[-200:], key=lambda node_id: graph.node(node_id).fitness)
            policy.tell(Selection(best, "both", "", 0), Outcome(exhausted=True))
    pending = tuple(Selection(rng.choice(ids), "both", "", 1) for _ in range(32))
    begun = time.process_time()
    for number in range(100):
        policy.ask(graph, random.Random(number), pending)
    assert (time.process_time() - begun) / 100 < 0.01


def test_a_selection_survives_its_event():
    for selection in (
        Selection("n1", "both", "why", group=0),
        Selection(None, "none", "why", want_ideas=4),
        Selection("n1", "siblings", "why", idea="tile"),
    ):
        assert Selection.from_json(selection.to_json()) == selection


def test_policies_are_found_by_name():
    assert set(POLICIES) <= set(list_policies())
    assert all(list_policies().values())
    with pytest.raises(SettingsInvalid, match="unknown policy 'nope'") as caught:
        load_policy("nope", 1)
    assert "greedy" in caught.value.hint


@pytest.mark.parametrize("name", [*POLICIES])
def test_the_example_drives_every_policy_by_hand(name, capsys):
    runpy.run_path(str(EXAMPLES / "by_hand.py"))["main"](name)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 20
    assert lines[-1].startswith("best: ")


def test_the_example_of_a_policy_of_ones_own(monkeypatch):
    patient = runpy.run_path(str(EXAMPLES / "patient.py"))["Patient"]
    monkeypatch.setattr("policy_world.load_policy", lambda _, drafts: patient(drafts))
    world = World("patient", drafts=2)
    world.drafted(1.0, 2.0)
    parents = []
    for number in range(4):
        parents.append(world.ask(number).parent_id)
        world.tell(world.ask(number), 3.0 + number)
    assert parents == ["n2", "n3", "n4", "n5"]
    flying = (Selection("n6", "siblings", ""),)
    assert [world.ask(0).parent_id, world.ask(0, flying).parent_id] == ["n6", "n1"]
    assert world.rebuilt().ask(world.graph, random.Random(0), flying) == world.ask(0, flying)


@pytest.mark.parametrize("name", ["beam", "mcts", "evolutionary"])
def test_a_concurrent_run_is_replayed_from_its_log(kb, problem, name):
    settings = SearchSettings(problem, policy=name, drafts=3, steps=24, seed=5, concurrency=4)
    result = Search(kb, StubExecutor(), settings, generator=StubGenerator(), place=PLACE).run()
    report = replay(kb, result.run_id)
    assert report.asked >= 20
    assert report.divergences == ()
