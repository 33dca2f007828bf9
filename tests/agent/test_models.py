"""Several models in one run: the bandit, what happens to one that fails, and resuming with others."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from chat_server import ChatServer, completion, failure
from search_stubs import PLACE, StubExecutor

from agent import RunStore, Search, SearchSettings
from agent import events as ev
from agent.chat import ChatGenerator, ModelAnswerer
from agent.errors import SettingsInvalid
from agent.generator import Draft, Exhausted, GenerationFailed, GenerationRequest
from agent.generators import price_of
from agent.graph import SearchNode
from agent.models import ModelBandit, Portfolio, reward_of
from agent.models.usage import usage
from agent.recorded import replay
from harness.worker.model import ProblemFacts
from kb.chat import open_model
from kb.errors import ModelError, ModelUnavailable
from kb.settings import Price
from prompts import PromptRecord


def pulls(quality: dict[str, float], cost: dict[str, float | None], steps: int, seed: int) -> dict[str, int]:
    """How often each model is asked when it succeeds with this probability at this cost."""
    bandit, rng, count = ModelBandit(), random.Random(seed), dict.fromkeys(quality, 0)
    for _ in range(steps):
        name = bandit.order(list(quality))[0]
        count[name] += 1
        bandit.tell(name, float(rng.random() < quality[name]), 1000, cost[name])
    return count


@pytest.mark.parametrize("seed", range(5))
def test_the_better_model_is_asked_more_and_none_is_forgotten(seed: int) -> None:
    count = pulls({"a": 0.1, "b": 0.6, "c": 0.2}, dict.fromkeys("abc", 0.01), 200, seed)
    assert count["b"] > 100
    assert min(count.values()) >= 5


@pytest.mark.parametrize("seed", range(5))
def test_of_equals_the_cheaper_is_asked_more_but_quality_is_paid_for(seed: int) -> None:
    prices: dict[str, float | None] = {"dear": 0.50, "cheap": 0.01}
    equal = pulls({"dear": 0.3, "cheap": 0.3}, prices, 200, seed)
    assert equal["cheap"] > 1.3 * equal["dear"]
    better = pulls({"dear": 0.8, "cheap": 0.2}, prices, 200, seed)
    assert better["dear"] > 1.5 * better["cheap"]


def test_unknown_costs_are_compared_in_tokens() -> None:
    bandit = ModelBandit()
    for _ in range(3):
        bandit.tell("long", 0.5, 9000, None)
        bandit.tell("short", 0.5, 100, 0.0)
    assert bandit.order(["long", "short"]) == ["short", "long"]


def test_what_is_pending_counts_as_asked() -> None:
    bandit = ModelBandit()
    assert bandit.order(["a", "b", "c"]) == ["a", "b", "c"]
    assert bandit.order(["a", "b", "c"], ["a", "b"])[0] == "c"
    for name in ("a", "b"):
        bandit.tell(name, 0.5, 10, 0.0)
    assert bandit.order(["a", "b"], ["a"] * 3)[0] == "b"


def test_rewards() -> None:
    def node(fitness: float, status: str = "correct") -> SearchNode:
        return SearchNode("n", "p", 1, "g", "", "", status, fitness)

    assert reward_of(None, None) == reward_of(node(0.0, "incorrect"), None) == 0
    assert reward_of(node(1.5), node(1.5)) == 0.25
    assert reward_of(node(1.0), node(2.0)) == 0.25
    assert reward_of(node(4.0), node(2.0)) == reward_of(node(9.0), node(2.0)) == 1
    assert 0.25 < reward_of(node(1.2), node(0.0, "incorrect")) < 1


# --- one that fails ---


class Scripted:
    """Says what is next in its script."""

    def __init__(self, *script: Any, hosted: bool = False) -> None:
        self.name, self.hosted, self.script, self.asked = "scripted", hosted, list(script), 0

    def generate(self, request: GenerationRequest) -> Draft:
        self.asked += 1
        said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(said, Exception):
            raise said
        return Draft(said, "h")


def request(*names: str) -> GenerationRequest:
    facts = ProblemFacts("p", [], [], [], [], [], [])
    return GenerationRequest(PromptRecord("", 0, {}, [], ""), facts, "", "cpu", None, 1, 0, generators=names)


class Clock:
    now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def portfolio(clock: Clock, patience_s: float = 1800, **members: Scripted) -> Portfolio:
    return Portfolio(members, patience_s=patience_s, sleep=clock.sleep, clock=lambda: clock.now)


def test_a_model_that_is_down_makes_way_and_comes_back() -> None:
    clock = Clock()
    a, b = Scripted(ModelUnavailable("a is down"), "a"), Scripted("b")
    both = portfolio(clock, a=a, b=b)
    draft = both.generate(request("a", "b"))
    assert (draft.source, draft.generator) == ("b", "b")
    assert draft.notes == {"model": ["a is down"]}
    assert both.generate(request("a", "b")).generator == "b"
    assert a.asked == 1, "it rests"
    clock.sleep(600)
    assert both.generate(request("a", "b")).generator == "a"


def test_a_rejected_key_puts_one_model_out_and_not_the_run() -> None:
    a, b = Scripted(ModelError("a: the provider rejected the key")), Scripted("b")
    both = portfolio(Clock(), a=a, b=b)
    for _ in range(3):
        assert both.generate(request("a", "b")).source == "b"
    assert a.asked == 1
    with pytest.raises(ModelError, match="rejected the key"):
        portfolio(Clock(), a=a).generate(request("a"))


def test_while_all_are_down_they_are_waited_for() -> None:
    clock = Clock()
    down = [ModelUnavailable("down")] * 5
    a, b = Scripted(*down, "a"), Scripted(*down, "b")
    assert portfolio(clock, a=a, b=b).generate(request("b", "a")).source == "b"
    assert clock.now >= 600
    with pytest.raises(ModelUnavailable):
        portfolio(Clock(), 300, a=Scripted(ModelUnavailable("down"))).generate(request("a"))


def test_who_has_nothing_new_makes_way_and_who_fails_is_named() -> None:
    a, b = Scripted(Exhausted("all tried")), Scripted(GenerationFailed("refused"))
    with pytest.raises(GenerationFailed, match="refused") as caught:
        portfolio(Clock(), a=a, b=b).generate(request("a", "b"))
    assert caught.value.generator == "b"
    with pytest.raises(Exhausted, match="all tried"):
        portfolio(Clock(), a=a).generate(request("a"))


def test_one_hosted_member_makes_all_prompts_leave() -> None:
    assert portfolio(Clock(), a=Scripted("a"), b=Scripted("b", hosted=True)).hosted
    assert not portfolio(Clock(), a=Scripted("a")).hosted


# --- whole runs with real servers ---


def writer(x: int) -> Callable[[str], Any]:
    """A model whose candidates get better with every answer, from x on."""
    said = iter(range(x, 10_000, 34))
    return lambda _: completion(f"HYPOTHESIS: {x}\n```\nclass ModelNew:\n    X = {next(said)}\n```")


@pytest.fixture
def two(chat_server: Any) -> tuple[str, str, dict[str, ChatServer]]:
    servers = {"a": chat_server(writer(0)), "b": chat_server(writer(17))}
    a, b = (f"openai:m@{server.url}" for server in servers.values())
    return a, b, servers


def test_two_models_share_a_run_and_the_list_may_change(kb: Any, problem: str, two: Any) -> None:
    a, b, servers = two
    settings = SearchSettings(problem, steps=6, generator=f"{a},{b}", parameters={"seed": 5})
    search = Search(kb, StubExecutor(), settings, place=PLACE)
    run_id = search.run().run_id
    store = RunStore(kb)
    run = store.load(run_id)
    makers = [node.generator for node in run.graph.candidates()]
    assert makers[:2] == [a, b]
    assert set(makers) == {a, b}
    steps = [e.payload for e in run.events if e.kind == "step"]
    assert all(p["tokens_in"] == 100 and p["tokens_out"] == 20 and p["tokens"] == 120 for p in steps)
    assert run.info.tokens == 120 * 6
    assert {r["seed"] for r in servers["a"].requests} == {5}
    totals = usage(steps, run.graph)
    assert [entry.generator for entry in totals] == [a, b]
    assert sum(entry.steps for entry in totals) == 6
    assert all(entry.tokens_in == 100 * entry.steps and entry.correct for entry in totals)
    assert all(entry.cost_usd is None for entry in totals), "no price is known"


def test_the_bandits_state_is_rebuilt_from_the_events(kb: Any, problem: str, two: Any) -> None:
    a, b, servers = two

    class Stop(Exception):
        pass

    def after(steps: int) -> Callable[[ev.SearchEvent], None]:
        def stop(event: ev.SearchEvent) -> None:
            if isinstance(event, ev.Evaluated) and event.step == steps:
                raise Stop

        return stop

    def whole() -> list[list[str]]:
        events = RunStore(kb).load("last").events
        return [e.payload["generators"] for e in events if e.kind == "asked"]

    settings = SearchSettings(problem, steps=9, generator=f"{a},{b}")
    Search(kb, StubExecutor(), settings, place=PLACE).run()
    expected = whole()
    for server, x in zip(servers.values(), (0, 17), strict=True):
        server.reply = writer(x)
    with pytest.raises(Stop):
        Search(kb, StubExecutor(), settings, place=PLACE, on_event=after(4)).run()
    Search.resume(kb, StubExecutor(), "last", place=PLACE)
    assert whole() == expected
    assert replay(kb, "last").divergences == ()
    assert len({tuple(order) for order in expected}) == 2


def test_a_run_goes_on_with_other_models(kb: Any, problem: str, two: Any) -> None:
    a, b, servers = two
    servers["a"].reply = lambda _: failure(401)
    settings = SearchSettings(problem, steps=4, generator=a)
    with pytest.raises(ModelError, match="rejected the key"):
        Search(kb, StubExecutor(), settings, place=PLACE).run()
    Search.resume(kb, StubExecutor(), "last", place=PLACE, changes={"generator": f"{b},{a}"})
    run = RunStore(kb).load("last")
    assert run.info.state == "finished"
    assert run.settings.generator == run.info.generator == f"{b},{a}"
    assert [node.generator for node in run.graph.candidates()] == [b] * 4, "the other's key is no better now"
    assert [e.payload for e in run.events if e.kind == "settings"] == [{"generator": f"{b},{a}"}]


def test_streamed_answers_and_waits_are_told(
    kb: Any, problem: str, two: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kb.chat._FIRST_WAIT_S", 0.01)
    a, _, servers = two
    servers["a"].script = [failure(503)]
    seen: list[ev.SearchEvent] = []
    settings = SearchSettings(problem, steps=1, generator=a, stream=True)
    Search(kb, StubExecutor(), settings, place=PLACE, on_event=seen.append).run()
    written = [event.characters for event in seen if isinstance(event, ev.Writing)]
    assert len(written) == 3
    assert written == sorted(written)
    assert any("is asked again in" in event.text for event in seen if isinstance(event, ev.Noted))


def test_a_provider_that_is_down_for_ten_minutes_costs_a_run_nothing_but_time(
    kb: Any, problem: str, chat_server: Any
) -> None:
    clock, said = Clock(), writer(1)
    server = chat_server(lambda prompt: 503 if 0 < clock.now < 600 else said(prompt))
    server.script = [said(""), 503]
    model = open_model(
        "openai:m", server.url, attempts=1000, patience_s=1800, sleep=clock.sleep, clock=lambda: clock.now
    )
    waits: list[str] = []

    def on_event(event: ev.SearchEvent) -> None:
        if isinstance(event, ev.Noted):
            waits.append(event.text)

    settings = SearchSettings(problem, steps=3)
    generator = ChatGenerator(ModelAnswerer(model))
    result = Search(kb, StubExecutor(), settings, generator=generator, place=PLACE, on_event=on_event).run()
    assert (result.steps, result.valid) == (3, 3)
    assert result.stop_reason.startswith("steps")
    assert 600 <= clock.now < 700
    assert len(waits) > 10
    assert len(server.requests) < 40


@pytest.mark.parametrize("listed", ["recipe,", "recipe,recipe", ","])
def test_a_list_of_generators_is_checked(kb: Any, problem: str, listed: str) -> None:
    with pytest.raises(SettingsInvalid):
        Search(kb, StubExecutor(), SearchSettings(problem, generator=listed), place=PLACE)


@pytest.mark.parametrize("name", ["api_key", "openai_api_key", "default_headers", "base_url", "n"])
def test_parameters_are_no_place_for_keys_or_what_the_search_decides(problem: str, name: str) -> None:
    with pytest.raises(SettingsInvalid, match=name):
        SearchSettings(problem, generator="openai:m", parameters={name: "x"})
    assert SearchSettings(problem, generator="openai:m", parameters={"max_tokens": 5, "top_k": 3})


def test_a_price_holds_at_every_address_that_has_none_of_its_own() -> None:
    prices = {"openai:m": Price(input=1, output=2), "openai:m@http://h/v1": Price(input=0, output=0.5)}
    assert price_of("openai:m@http://other/v1", prices) == prices["openai:m"]
    assert price_of("openai:m@http://h/v1", prices) == prices["openai:m@http://h/v1"]
    assert price_of("openai:else", prices) is None
    assert price_of("recipe", {}) == Price(input=0, output=0)


def test_several_models_and_steps_under_way(kb: Any, problem: str, two: Any) -> None:
    a, b, servers = two
    settings = SearchSettings(problem, steps=12, generator=f"{a},{b}", concurrency=4)
    Search(kb, StubExecutor(), settings, place=PLACE).run()
    run = RunStore(kb).load("last")
    assert sum(len(server.requests) for server in servers.values()) == 12
    assert {node.generator for node in run.graph.candidates()} == {a, b}
    first = [e.payload["generators"][0] for e in run.events if e.kind == "asked"][:4]
    assert first == [a, b, a, b], "what is under way counts as asked"
    assert replay(kb, "last").divergences == ()


def test_parameters_are_for_chat_models(kb: Any, problem: str) -> None:
    with pytest.raises(SettingsInvalid, match="takes no parameters"):
        Search(kb, StubExecutor(), SearchSettings(problem, parameters={"temperature": 1}), place=PLACE)


def test_a_budget_that_cannot_be_kept_to_stops_the_run(kb: Any, problem: str, chat_server: Any) -> None:
    said = writer(1)
    server = chat_server(
        lambda prompt: completion(said(prompt).body["choices"][0]["message"]["content"], usage=None)
    )
    settings = SearchSettings(problem, steps=5, generator=f"openai:m@{server.url}", max_tokens=10_000)
    result = Search(kb, StubExecutor(), settings, place=PLACE).run()
    assert result.steps == 1
    assert result.stop_reason.startswith("tokens: a step came without usage figures")
