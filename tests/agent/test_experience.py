"""Steps that the engine adds: tuned numbers, and what earlier runs found or failed at."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from search_stubs import PLACE, PROBLEM, StubExecutor, StubGenerator

from agent import RunStore, Search, SearchSettings
from agent.generator import Draft
from agent.policies import list_policies
from agent.recorded import replay as replayed


class Blocky:
    """Candidates with a tile size: `tile` 32 is the best one."""

    name = "blocky"
    hosted = False

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def generate(self, request: Any) -> Draft:
        self.requests.append(request)
        x = 20 + len(self.requests)
        return Draft(f"class ModelNew:\n    X = {x}\n    TILE = 4\n", f"x = {x}", tokens_in=10)


class Tiled(StubExecutor):
    """A candidate is faster by 0.1 for each doubling of its tile up to 32, and wrong from 128 on."""

    def evaluate(self, request: Any) -> Any:
        found = re.search(r"TILE = (\d+)", request.candidate)
        tile = int(found[1]) if found else 0
        evaluation = super().evaluate(request)
        bonus = {4: 0.0, 8: 0.1, 16: 0.2, 32: 0.3, 64: 0.2}.get(tile, 0.0)
        speedup = (evaluation.speedup or 0.0) + bonus
        evaluation.speedup, evaluation.speedup_ci = speedup, (speedup * 0.99, speedup * 1.01)
        return evaluation


def run(kb: Any, problem: str, generator: Any, executor: Any = None, **settings: Any) -> Any:
    chosen = SearchSettings(problem, **{"drafts": 1, **settings})
    result = Search(kb, executor or StubExecutor(), chosen, generator=generator, place=PLACE).run()
    return RunStore(kb).load(result.run_id)


def test_after_a_models_step_numbers_are_tuned(kb, problem):
    generator, executor = Blocky(), Tiled()
    stored = run(kb, problem, generator, executor, steps=6, tune=4)
    nodes = stored.graph.candidates()
    tuned = [node.notes["tuned"]["to"] for node in nodes if node.generator == "tune"]
    assert tuned == [8, 16, 32, 64]  # goes on as long as it helps
    assert [node.generator for node in nodes] == ["blocky", "tune", "tune", "tune", "tune", "blocky"]
    assert [stored.graph.node(n.parent_id).step for n in nodes[1:5]] == [1, 2, 3, 4]
    assert nodes[2].notes["hypothesis"]["predicted"][1] == pytest.approx(0.81 / 0.71)
    assert nodes[4].notes["verdict"]["word"] == "refuted"
    assert len(generator.requests) == 2
    assert stored.info.tokens == 20
    assert executor.requests[1].timing_budget_s == executor.requests[0].timing_budget_s / 2
    assert replayed(kb, stored.info.run_id).divergences == ()
    assert generator.requests[1].parent.generator == "tune"  # the model goes on from there


def test_without_tuning_every_step_is_the_models(kb, problem):
    stored = run(kb, problem, Blocky(), Tiled(), steps=3)
    assert {node.generator for node in stored.graph.candidates()} == {"blocky"}


def test_an_earlier_find_is_judged_anew(kb, problem):
    earlier = run(kb, problem, StubGenerator(), steps=12)
    executor = StubExecutor()
    stored = run(kb, problem, Blocky(), executor, steps=4, warm_start="1")
    first, *rest = stored.graph.candidates()
    assert (first.generator, first.step) == ("warm-start", 1)
    assert first.digest == earlier.graph.node(earlier.info.best_node_id).digest
    assert first.notes["verdict"]["word"] == "confirmed"
    assert first.evaluation["stages"]
    assert {node.generator for node in rest} == {"blocky"}  # once is enough
    assert len([r for r in executor.requests if not r.measure_compile]) == 4
    assert replayed(kb, stored.info.run_id).divergences == ()
    assert "warm-start" not in {n.generator for n in run(kb, problem, Blocky(), steps=3).graph}


def test_a_kernel_of_another_problem_is_an_example_and_no_candidate(kb, problem, tmp_path):
    other = tmp_path / "plus_two.py"
    other.write_text(PROBLEM.replace("x + 1", "x + 2"))

    class Traced(StubExecutor):
        def describe(self, source: str, name: str = "problem") -> Any:
            from harness.worker.model import GraphNode

            facts = super().describe(source, name)
            extra = ["mul"] if "x + 2" in source else []
            ops = ["add", "relu", "exp", *extra]
            nodes = [GraphNode(op, f"aten.{op}.Tensor", [], {}, facts.outputs) for op in ops]
            return replace(facts, nodes=nodes)

    run(kb, str(other), StubGenerator(), Traced(), steps=6)
    generator = Blocky()
    stored = run(kb, problem, generator, Traced(), steps=2, warm_start="1")
    assert {node.generator for node in stored.graph.candidates()} == {"blocky"}
    assert "for another problem (plus_two)" in generator.requests[0].prompt.prompt
    events = [e.payload for e in stored.events if e.kind == "asked"]
    assert [event["injected"]["by"] for event in events] == ["example", "example"]


def test_what_failed_in_earlier_runs_is_to_be_avoided(kb, problem):
    class Failing(Blocky):
        def generate(self, request: Any) -> Draft:
            self.requests.append(request)
            return Draft("class ModelNew:\n    X = 62\n", "use inline assembly")

    earlier = run(kb, problem, Failing(), steps=1)
    told = Failing()
    run(kb, problem, told, steps=1, earlier_runs=True)
    line = f"use inline assembly: compile_error (run {earlier.info.run_id}): error: no such thing"
    assert line in told.requests[0].prompt.prompt
    for settings in ({"earlier_runs": False}, {}):  # recipe reads no prompt
        untold = Failing()
        run(kb, problem, untold, steps=1, **settings)
        assert "inline assembly" not in untold.requests[0].prompt.prompt


@pytest.mark.parametrize("policy", sorted(list_policies()))
def test_every_policy_lives_with_steps_that_it_did_not_ask_for(kb, problem, policy):
    run(kb, problem, StubGenerator(), steps=5)
    stored = run(
        kb, problem, Blocky(), Tiled(), policy=policy, steps=9, tune=2, warm_start="adaptive", drafts=2
    )
    assert stored.info.state == "finished"
    assert replayed(kb, stored.info.run_id).divergences == ()
