"""Estimates before a search: what they rest on, and that nothing is stored."""

from __future__ import annotations

from typing import Any

import pytest
from search_stubs import PLACE, StubExecutor, StubGenerator

from agent import RunStore, Search, SearchSettings
from agent.plan import SearchPlan, plan
from harness.problem import load_problem
from kb.settings import Price

MODEL = "openai:some-model"


def planned(kb: Any, path: str, **settings: Any) -> SearchPlan:
    problem = load_problem(path)
    facts = StubExecutor().describe(problem.source, problem.name)
    chosen = SearchSettings(path, **{"generator": MODEL, "steps": 10, **settings})
    return plan(kb, chosen, problem, facts, place=PLACE)


def test_without_earlier_runs_the_first_prompt_is_counted_and_the_rest_assumed(kb, problem):
    found = planned(kb, problem)
    assert found.prompt_tokens > 100
    assert 10 * found.prompt_tokens < found.tokens.low < found.tokens.expected < found.tokens.high
    assert found.tokens.high >= 10 * 16_000
    assert "assumed" in found.tokens.basis
    assert found.cost_usd.expected is None
    assert "no price" in found.cost_usd.basis
    assert found.time_s.low < found.time_s.expected < found.time_s.high
    assert planned(kb, problem, concurrency=4).time_s.expected < found.time_s.expected
    assert RunStore(kb).list_runs() == []


def test_a_configured_price_makes_money_of_tokens(kb, problem):
    kb.settings = kb.settings.model_copy(update={"prices": {MODEL: Price(input=1.0, output=10.0)}})
    found = planned(kb, problem)
    assert found.cost_usd.low == pytest.approx(10 * (found.prompt_tokens + 10 * 1000) / 1e6)
    assert found.cost_usd.low < found.cost_usd.expected < found.cost_usd.high


def test_earlier_runs_say_more_than_assumptions(kb, problem):
    settings = SearchSettings(problem, generator=MODEL, steps=6)
    result = Search(kb, StubExecutor(), settings, generator=StubGenerator(), place=PLACE).run()
    found = planned(kb, problem, steps=60)
    assert found.tokens.expected == pytest.approx(10 * result.tokens)
    assert found.time_s.expected == pytest.approx(10 * result.elapsed_s)
    assert found.cost_usd.expected == 0
    assert found.tokens.basis.startswith("1 earlier run with")
    assert "assumed" in planned(kb, problem, concurrency=2).tokens.basis
    assert "assumed" in planned(kb, problem, generator="openai:another").tokens.basis


def test_a_stop_rule_bounds_the_estimate(kb, problem):
    found = planned(kb, problem, max_tokens=20_000, time_limit_s=60.0)
    assert (found.tokens.high, found.time_s.high) == (20_000, 60.0)
    assert "stopped at 20000" in found.tokens.basis
    assert planned(kb, problem, max_tokens=10**9).tokens.high < 10**9


def test_a_generator_without_a_model_costs_nothing(kb, problem):
    found = planned(kb, problem, generator="recipe")
    assert (found.tokens.high, found.cost_usd.high) == (0, 0)
    assert found.time_s.expected > 10
