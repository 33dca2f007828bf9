"""Which earlier runs match, and when they have a say."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agent.errors import SettingsInvalid
from agent.warm_start import Match, WarmStart, fits, parse_probability, same_vendor, similarity


def facts(ops: list[str], shape: tuple[int, ...] = (64, 128), dtype: str = "float32") -> dict[str, Any]:
    tensor = {"name": "x", "shape": list(shape), "dtype": dtype}
    return {"nodes": [{"op": f"aten.{op}.default"} for op in ops], "inputs": [tensor], "outputs": [tensor]}


def match(node_id: str, kind: Any = "fits") -> Match:
    return Match(node_id, "r", "p", "cpu", 2.0, 1.0, kind)


def warm(setting: str, *matches: Match) -> WarmStart:
    made = WarmStart(setting)
    made.matches = list(matches)
    return made


def test_alike_are_problems_with_the_same_operators_shapes_and_dtypes():
    mine = facts(["exp", "sum", "div"])
    assert similarity(mine, mine) == 1.0
    assert fits(mine, mine)
    values = [
        similarity(mine, other)
        for other in (
            facts(["exp", "sum", "div"], (64, 256)),
            facts(["exp", "sum", "div"], (64, 256), "float16"),
            facts(["exp", "sum"], (64, 256), "float16"),
            facts(["mm"]),
        )
    ]
    assert values == sorted(values, reverse=True)
    assert values[-1] == 0.0
    assert not fits(mine, facts(["exp", "sum", "div"], (64, 256)))
    assert not fits(facts([]), facts([]))  # nothing is known of either
    assert same_vendor("nvidia:sm_80", "nvidia:sm_90")
    assert not same_vendor("cpu", "nvidia:sm_90")


@pytest.mark.parametrize("text", ["", "often", "-0.1", "1.5", "nan"])
def test_what_is_no_probability_is_refused(text):
    with pytest.raises(SettingsInvalid, match="warm_start"):
        parse_probability(text)


def test_what_fits_is_judged_once_and_examples_take_turns():
    start = warm("1", match("a"), match("b"), match("c", "alike"), match("d", "alike"))
    rng = random.Random(0)
    seen, waiting = [], []
    for _ in range(3):
        proposal = start.propose(rng, waiting)
        waiting.append(proposal)
        seen.append((proposal["by"], proposal["node"]))
    assert seen == [("warm-start", "a"), ("warm-start", "b"), ("example", "c")]
    for proposal in waiting:
        start.tell(proposal, is_best=False)
    assert start.propose(rng, [])["node"] == "d"
    assert warm("0", match("a")).propose(rng, []) is None
    assert warm("1").propose(rng, []) is None


def test_the_share_of_injections_is_the_probability():
    rng = random.Random(1)
    start = warm("0.3", match("c", "alike"))
    share = sum(start.propose(rng, []) is not None for _ in range(2000)) / 2000
    assert share == pytest.approx(0.3, abs=0.03)


def test_adaptive_is_high_at_the_start_falls_with_own_gains_and_returns_after_a_stall():
    start = warm("adaptive", match("a"))
    assert start.probability == pytest.approx(0.8)
    start.tell({"by": "warm-start", "node": "a"}, is_best=True)
    assert start.probability == pytest.approx(0.8)  # that gain was not its own
    seen = []
    for _ in range(4):
        start.tell(None, is_best=True)
        seen.append(start.probability)
    assert seen == pytest.approx([0.4, 0.2, 0.1, 0.05])
    for _ in range(16):
        start.tell(None, is_best=False)
    assert start.probability == pytest.approx(0.6)
