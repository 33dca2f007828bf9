"""What each policy is for, shown on small graphs and on landscapes that need it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from policy_world import World

from agent.behaviour import behaviour
from agent.policies import Outcome, Selection
from agent.policies.archive import Archive, cell_of
from agent.policies.evolutionary import ISLANDS, MIGRATION, POPULATION
from agent.policies.ledger import Order

IDEAS = (
    "tile the product for the cache",
    "fuse bias and activation into one pass",
    "tile the product for the cache",
    "static schedule, one block of rows for each thread",
    "wider vectors in the inner loop",
    "nontemporal stores for the large output",
)


def kind(bottleneck: str = "memory", language: str = "cpp", tile: str = "none") -> dict:
    return {
        "diagnosis": {"bottleneck": bottleneck},
        "notes": {"behaviour": {"language": language, "tile": tile}},
    }


# Greedy


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


# Beam


def expanded(world: World, steps: int, speedup=lambda n: 1.0 + n / 100) -> list[str]:
    parents = []
    for number in range(steps):
        selection = world.ask(number)
        parents.append(selection.parent_id)
        world.tell(selection, speedup(number))
    return parents


def test_the_beam_goes_level_by_level():
    world = World("beam", drafts=6)
    world.drafted(1.0, 6.0, 2.0, 5.0, 3.0, 4.0)
    first = expanded(world, 16)
    assert Counter(first) == {"n2": 4, "n4": 4, "n5": 4, "n6": 4}
    assert first[:4] == ["n2", "n4", "n6", "n5"]  # alike, the best one first
    second = expanded(world, 16)
    children = sorted(
        (n for n in world.graph if n.parent_id in {"n2", "n4", "n5", "n6"}),
        key=lambda n: n.rank,
        reverse=True,
    )
    assert set(second) == {n.node_id for n in children[:4]}  # although all drafts are faster


def test_levels_have_no_barrier_and_latecomers_are_expanded():
    world = World("beam", drafts=4)
    world.drafted(1.0, 1.0, 1.0, 1.0)
    late = [world.ask(0)]
    for _ in range(12):
        selection = world.ask(0, tuple(late))
        assert selection.group == 1
        world.tell(selection, 2.0)
    while (selection := world.ask(0, tuple(late))).group == 1:
        late.append(selection)
    assert len(late) == 4  # as many as the level still lacks
    assert selection.group == 2
    world.tell(selection, 3.0)
    latecomer = world.tell(late.pop(), 9.0)
    assert world.ask(0, tuple(late)).parent_id == latecomer.node_id


def test_a_beam_that_comes_to_nothing_starts_again_beside_itself():
    world = World("beam", drafts=5)
    world.drafted(5.0, 4.0, 3.0, 2.0, 1.0)
    for _ in range(16):
        world.tell(world.ask(), None, "incorrect")
    assert world.ask().parent_id in {"n1", "n5"}
    for name in ("n1", "n2", "n3", "n4"):
        world.nothing(Selection(name, "both", "", 1), exhausted=True)
    assert world.ask().parent_id == "n5"


def test_who_leads_to_nothing_leaves_the_beam():
    world = World("beam", drafts=5)
    world.drafted(5.0, 4.0, 3.0, 2.0, 1.0)
    world.nothing(Selection("n1", "both", "", 1), exhausted=True)
    assert {world.ask(0, (Selection(f"n{i}", "both", "", 1),) * 4).parent_id for i in (2, 3, 4)} == {
        "n2",
        "n3",
    }
    assert set(expanded(world, 16)) == {"n2", "n3", "n4", "n5"}


# UCT


def plateau(x: float) -> float:
    """The better hill begins lower than where the first one ends."""
    return max(0.05, 2.0 - (x + 1.5) ** 2, 1.2 if x > 1 else 0.3, 3.0 - (x - 6) ** 2 / 2)


def test_uct_explores_where_greedy_digs():
    def shares(name: str) -> float:
        """How much of the run the most expanded draft's subtree got."""
        world = World(name, drafts=4)
        world.search(plateau, 120)
        top = Counter()
        for node in world.graph.candidates():
            path = [node, *world.graph.lineage(node.node_id)]
            top[path[-2].node_id] += 1
        return top.most_common(1)[0][1] / 120

    assert shares("mcts") < 0.7 < shares("greedy")


def test_uct_returns_to_what_its_mean_undersold():
    world = World("mcts", drafts=2)
    world.drafted(1.0, 0.9)
    chosen = Counter()
    for number in range(40):
        selection = world.ask(number)
        chosen[selection.parent_id] += 1
        world.tell(selection, 0.2 if selection.parent_id == "n1" else 0.5)
    assert chosen["n1"] >= 2
    assert chosen["n2"] >= 2
    assert chosen[None] >= 2  # the specification's children widen, too
    assert len(chosen) > 5


def test_uct_prefers_the_subtree_that_delivers():
    world = World("mcts", drafts=2)
    world.drafted(1.0, 1.0)
    under = Counter()
    for number in range(60):
        selection = world.ask(number)
        top = (
            selection.parent_id
            and [
                n.node_id
                for n in (world.graph.node(selection.parent_id), *world.graph.lineage(selection.parent_id))
            ][-2]
        )
        under[top] += 1
        world.tell(selection, 1.2 if top == "n2" else 0.3)
    assert under["n2"] > 2 * under["n1"]


def test_a_spent_subtree_is_left_and_revives_with_a_latecomer():
    world = World("mcts", drafts=2)
    world.drafted(5.0, 1.0)
    world.nothing(Selection("n1", "both", ""), exhausted=True)
    assert {world.ask(n).parent_id for n in range(5)} <= {"n2", None}
    world.nothing(Selection(None, "none", ""), exhausted=True)
    world.nothing(Selection("n2", "both", ""), exhausted=True)
    assert world.ask() is None
    late = world.tell(Selection("n1", "both", ""), 6.0)  # it was in flight when its parent was given up
    assert world.ask().parent_id == late.node_id
    world.nothing(Selection(late.node_id, "both", ""), exhausted=True)
    assert world.ask() is None


# Islands and archive


def test_islands_evolve_apart_and_send_their_best_around_the_ring():
    world = World("evolutionary", drafts=4)
    for number in range(4):
        world.tell(world.ask(number), 1.0 + number, **kind())
    home = {f"n{i + 1}": i for i in range(4)}
    archive_only = {"n4"}  # all are of one kind, so the archive has the best alone
    steps = [1] * ISLANDS
    for number in range(400):
        selection = world.ask(number)
        assert selection.parent_id in archive_only or home[selection.parent_id] == selection.group
        if max(steps) == MIGRATION - 1:
            break
        steps[selection.group] += 1
        node = world.tell(selection, 0.5, **kind())
        home[node.node_id] = selection.group
    assert min(steps) >= MIGRATION - 2  # none is neglected
    for _ in range(ISLANDS):  # every island reaches the step at which its best moves on
        selection = world.ask(1)
        world.tell(selection, 0.5, **kind())
    seen = {(s.group, s.parent_id) for s in (world.ask(seed) for seed in range(400))}
    group = next(iter(seen))[0]
    assert (group, f"n{group + 1}") in seen
    assert (group, f"n{(group - 1) % ISLANDS + 1}") in seen  # the neighbour's founder has arrived
    assert (group, f"n{(group - 2) % ISLANDS + 1}") not in seen - {(group, "n4")}


def test_tournaments_prefer_the_fit_but_keep_variety():
    world = World("evolutionary", drafts=8)
    for number in range(8):
        world.tell(replace(world.ask(number), group=0), 1.0 + number / 10, **kind())
    busy = tuple(Selection(None, "none", "", group) for group in (1, 2, 3) for _ in range(9))
    chosen = Counter(world.ask(seed, busy).parent_id for seed in range(1000))
    assert len(chosen) == 6  # the two worst lose every tournament of three
    assert chosen["n8"] > chosen["n6"] > chosen["n3"]


def test_a_population_is_bounded_and_the_displaced_wait_their_turn():
    world = World("evolutionary", drafts=12)
    for number in range(12):
        world.tell(replace(world.ask(number), group=0), 1.0 + number / 10, **kind())
    busy = tuple(Selection(None, "none", "", group) for group in (1, 2, 3) for _ in range(30))
    members = {f"n{i}" for i in range(13 - POPULATION, 13)}
    assert {world.ask(seed, busy).parent_id for seed in range(400)} <= members
    for name in members:
        world.nothing(Selection(name, "siblings", "", 0), exhausted=True)
    assert {world.ask(seed, busy).parent_id for seed in range(100)} <= {f"n{i}" for i in range(1, 5)}


def test_slow_but_different_elites_are_expanded_too():
    world = World("evolutionary", drafts=12)
    for number in range(11):
        world.tell(world.ask(number), 5.0 + number, **kind())
    odd = world.tell(world.ask(), 0.1, **kind(language="triton", tile="large"))
    for number in range(60):  # the odd one's island fills up with faster nodes
        world.tell(replace(world.ask(number), group=3), 6.0, **kind())
    chosen = Counter(world.ask(seed).parent_id for seed in range(500))
    assert 20 < chosen[odd.node_id] < 100


def test_a_disqualified_member_is_not_expanded():
    world = World("evolutionary", drafts=2)
    world.drafted(1.0, 2.0)
    world.graph.put(replace(world.graph.node("n2"), status="incorrect", fitness=0.0))
    assert {world.ask(seed).parent_id for seed in range(40)} == {"n1"}


def test_every_memory_operator_is_drawn_and_recorded():
    world = World("evolutionary", drafts=2)
    world.drafted(1.0, 2.0)
    drawn = Counter(world.ask(seed).memory for seed in range(300))
    assert set(drawn) == {"none", "siblings", "lineage", "both"}
    assert drawn["siblings"] > drawn["none"] > 0
    assert all(Selection.from_json(world.ask(s).to_json()).memory == world.ask(s).memory for s in range(9))


def test_the_archive_keeps_the_best_of_each_kind():
    world, archive = World("one-shot"), Archive()
    speeds = [(1.0, kind()), (2.0, kind()), (0.5, kind("compute")), (1.5, kind()), (0.1, kind(tile="large"))]
    nodes = [world.tell(world.ask(), speed, **what) for speed, what in speeds]
    assert [archive.offer(node) for node in nodes] == [True, True, True, False, True]
    assert list(archive) == ["n2", "n3", "n5"]
    assert cell_of(nodes[4]) == ("memory", "cpp", "large")
    assert cell_of(world.tell(world.ask(), 1.0)) == ("unknown", "unknown", "unknown")


TRITON = """
import triton, triton.language as tl
@triton.jit
def k(x, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    pass
def forward(x):
    k[(1,)](x, BLOCK_M=64, BLOCK_N={n})
"""


@pytest.mark.parametrize(
    ("source", "language", "tile"),
    [
        (TRITON.format(n=16), "triton", "small"),
        (TRITON.format(n=128), "triton", "medium"),
        (TRITON.format(n=1024), "triton", "large"),
        (TRITON.format(n="triton.next_power_of_2(n)").replace("64", "m * 2"), "triton", "dynamic"),
        ("S = '''\n#include <cmath>\n#define TILE 32\nextern \"C\" void f();\n'''\n", "cpp", "small"),
        ("S = '''\n__global__ void f() {\n  constexpr int kTileM = 128, n = 2;\n}\n'''\n", "cuda", "small"),
        ("class ModelNew: pass\n", "torch", "none"),
        ("class (", "unknown", "unknown"),
    ],
)
def test_behaviour_is_read_from_the_source(source, language, tile):
    assert behaviour(source) == {"language": language, "tile": tile}


# Baselines


def test_linear_is_one_chain_from_the_best_draft():
    world = World("linear", drafts=3)
    world.drafted(1.0, 3.0, 2.0)
    assert (world.ask().parent_id, world.ask().memory) == ("n2", "lineage")
    for parent, speedup in (("n2", 1.5), ("n4", None), ("n5", 0.5)):
        assert world.ask().parent_id == parent
        assert world.ask(0, (world.ask(),)) is None  # a chain has one step at a time
        world.tell(world.ask(), speedup, "correct" if speedup else "runtime_error")
    world.nothing(world.ask(), exhausted=True)
    assert world.ask().parent_id == "n5"  # the one before goes on


def test_one_shot_never_expands():
    world = World("one-shot")
    for number in range(20):
        selection = world.ask(number)
        assert (selection.parent_id, selection.memory) == (None, "none")
        world.tell(selection, 1.0 + number)


# Ideas


def ideas(world: World, texts=IDEAS) -> Selection:
    selection = world.ask(0)
    assert selection.want_ideas == 2 * world.drafts
    world.told(selection, Outcome(ideas=tuple(texts)))
    return selection


def test_diverse_ideas_become_branches_and_the_fastest_seeds_the_next_round():
    world = World("idea-first", drafts=4)
    first = ideas(world)
    assert (first.parent_id, first.memory) == (None, "none")
    tried = []
    for speedup in (1.0, 1.5, 1.2, 1.4):
        selection = world.ask(0)
        assert (selection.parent_id, selection.memory, selection.group) == (None, "none", 0)
        tried.append(selection.idea)
        world.tell(selection, speedup)
    assert len(set(tried)) == 4
    assert tried[0] == IDEAS[0]
    second = ideas(world, ("unroll the loop over columns", *IDEAS))
    assert second.parent_id == "n2"
    again = world.ask(0)
    assert (again.parent_id, again.group, again.idea) == ("n2", 1, "unroll the loop over columns")
    assert again.memory == "lineage"


def test_a_branch_that_fails_is_repaired_twice_and_then_given_up():
    world = World("idea-first", drafts=1)
    ideas(world)
    parents = []
    for _ in range(3):
        selection = world.ask(0)
        assert selection.idea == IDEAS[0]
        parents.append(selection.parent_id)
        world.tell(selection, None, "incorrect")
    assert parents == [None, "n1", "n2"]
    assert world.ask(0).want_ideas  # nothing is correct: the specification is asked about again
    assert world.ask(0).parent_id is None


def test_branches_run_side_by_side_and_a_round_does_not_wait_for_its_last():
    world = World("idea-first", drafts=3)
    asking = world.ask(0)
    assert world.ask(0, (asking,)) is None  # without ideas there is nothing to do
    world.told(asking, Outcome(ideas=IDEAS))
    branches = []
    while (selection := world.ask(0, tuple(branches))) is not None:
        branches.append(selection)
    assert len({b.idea for b in branches}) == len(branches) == 3
    world.tell(branches.pop(), None, "timeout")
    assert world.ask(0, tuple(branches)).parent_id == "n1"  # a repair needs nobody else
    world.tell(branches.pop(), 2.0)
    repair = world.ask(0, tuple(branches))
    following = world.ask(0, (*branches, repair))
    assert (following.want_ideas, following.parent_id, following.group) == (6, "n2", 1)
    assert world.ask(0, (*branches, repair, following)) is None


def test_ideas_that_were_had_before_are_not_implemented_again():
    world = World("idea-first", drafts=2)
    ideas(world)
    for _ in range(2):
        world.tell(world.ask(0), 1.0)
    had = [s.idea for s, _ in world.log if s.idea]
    for _ in range(2):
        world.told(world.ask(0), Outcome(ideas=tuple(had)))
    assert world.ask(0).parent_id == "n2"  # nothing new for the best, twice: ask about the second
    world.told(world.ask(0), Outcome(exhausted=True))
    assert world.ask(0).parent_id is None
    world.told(world.ask(0), Outcome(exhausted=True))
    assert world.ask(0) is None


# The order that they share


def test_an_order_stays_sorted_under_changes():
    order, rng, keys = Order(), random.Random(1), {}
    for _ in range(500):
        name = f"n{rng.randrange(60)}"
        if rng.random() < 0.3:
            order.discard(name)
            keys.pop(name, None)
        else:
            keys[name] = (rng.randrange(9), rng.random())
            order.put(name, keys[name])
        assert list(order) == sorted(keys, key=lambda n: keys[n])
    order.trim(5)
    assert list(order) == sorted(keys, key=lambda n: keys[n])[:5]
    order.put("n1", (0, 0.0))
    assert order.first() == ((0, 0.0), "n1")
