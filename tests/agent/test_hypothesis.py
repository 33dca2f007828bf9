"""What a step claims, read from an answer, and what a measurement makes of it."""

from __future__ import annotations

import pytest

from agent.graph import SearchNode
from agent.hypothesis import NONE_STATED, Hypothesis, predicted_range, verdict_on


def node(status: str = "correct", speedup: float | None = None, spread: float = 0.02) -> SearchNode:
    ci = (speedup * (1 - spread), speedup * (1 + spread)) if speedup else None
    return SearchNode(
        "n", "p", 2, "stub", "s", "d", status, fitness=speedup or 0.0, speedup=speedup, speedup_ci=ci
    )


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("1.3x", 1.3, 1.3),
        ("about 1.2x to 1.5x faster", 1.2, 1.5),
        ("1.2–1.5 × eager", 1.2, 1.5),
        ("2x slower", 0.5, 0.5),
        ("20 % faster", 1.2, 1.2),
        ("30 % less time", 1 / 0.7, 1 / 0.7),
        ("cuts the run time by 20-50 %", 1.25, 2.0),
        ("halves the time", 2.0, 2.0),
        ("no change in speed", 1.0, 1.0),
        ("speedup of 1.4", 1.4, 1.4),
        ("from 1.2x to 1.5x", 1.25, 1.25),
        ("40% faster since there are 2x fewer loads", 1.4, 1.4),
    ],
)
def test_a_predicted_size_is_read(text, low, high):
    assert predicted_range(text) == pytest.approx((low, high))


@pytest.mark.parametrize("text", ["", "faster", "50 % less traffic", "unroll 4", "0x", "110 % less time"])
def test_what_is_no_size_of_an_effect_is_none(text):
    assert predicted_range(text) is None


def test_an_answer_states_change_reason_and_prediction():
    answer = (
        "**Hypothesis:** keep the row in 4x4 tiles\nof registers\n> BECAUSE: it is read three times\n"
        "- Predicted effect: 1.3x\n\n```python\n# why: code is no statement\n```\n"
    )
    stated = Hypothesis.parse(answer)
    assert stated.change == "keep the row in 4x4 tiles of registers"
    assert stated.because == "it is read three times"
    assert stated.predicted == (1.3, 1.3)
    assert Hypothesis.from_json(stated.to_json()) == stated


def test_one_line_of_prose_predicts_at_its_end():
    stated = Hypothesis.parse("HYPOTHESIS: unroll 4x, the chain is long; should be 20 % faster")
    assert stated.predicted == (1.2, 1.2)
    stated = Hypothesis.parse("HYPOTHESIS: unroll 4x because the chain is long (predicted: 1.3x)")
    assert (stated.change, stated.because, stated.predicted) == ("unroll 4x", "the chain is long", (1.3, 1.3))
    assert Hypothesis.parse("HYPOTHESIS: add the mask (predicted: correct)").correct
    assert Hypothesis.parse("HYPOTHESIS: unroll 4x").predicted is None
    assert Hypothesis.parse("HYPOTHESIS: unroll; expected to be faster").faster
    assert Hypothesis.parse("HYPOTHESIS: add the mask\nPREDICTED: correct").correct
    assert Hypothesis.parse("PREDICTED: 2x\nno label of a hypothesis").change == NONE_STATED


@pytest.mark.parametrize(
    ("predicted", "speedup", "spread", "word", "off"),
    [
        ((1.3, 1.3), 2.6, 0.02, "confirmed", 1.0),  # the starting point has 2.0
        ((1.3, 1.3), 2.4, 0.02, "confirmed", 0.923),  # more than half of the effect
        ((1.3, 1.3), 6.0, 0.02, "confirmed", 2.307),  # more than predicted
        ((1.3, 1.3), 2.0, 0.02, "refuted", 0.769),
        ((1.3, 1.3), 1.5, 0.02, "refuted", 0.577),
        ((1.3, 1.3), 2.1, 0.3, "open", 0.808),  # the interval reaches from a loss to the gain
        ((0.8, 0.9), 1.7, 0.02, "confirmed", 1.002),
        ((0.8, 0.9), 3.0, 0.02, "refuted", 1.768),
        ((1.0, 1.0), 2.04, 0.01, "confirmed", 1.02),
    ],
)
def test_the_measurement_decides_against_the_starting_point(predicted, speedup, spread, word, off):
    start = node(speedup=2.0)
    found = verdict_on(Hypothesis("h", predicted=predicted), node(speedup=speedup, spread=spread), start)
    assert found.word == word
    assert found.off == pytest.approx(off, abs=1e-3)
    assert found.measured == pytest.approx(speedup / 2.0)


def test_a_draft_is_measured_against_the_reference():
    found = verdict_on(Hypothesis("h", predicted=(2.0, 2.0)), node(speedup=2.0), None)
    assert (found.word, found.off) == ("confirmed", 1.0)
    assert found.text == "confirmed: predicted 2.00x, measured 2.00x (1.96 to 2.04), as predicted"


def test_a_failure_decides_only_what_was_said_of_it():
    gain, repair = Hypothesis("h", predicted=(2.0, 2.0)), Hypothesis("h", correct=True)
    assert verdict_on(gain, node("compile_error"), None).word == "open"
    assert verdict_on(repair, node("compile_error"), None).word == "refuted"
    assert verdict_on(repair, node(speedup=0.8), node("incorrect")).word == "confirmed"
    assert verdict_on(gain, node(), None).word == "open"  # not timed


def test_a_gain_without_a_size_needs_the_whole_interval():
    stated = Hypothesis("h", faster=True)
    words = [verdict_on(stated, node(speedup=s, spread=0.1), None).word for s in (1.5, 1.05, 0.8)]
    assert words == ["confirmed", "open", "refuted"]
