"""What a search records of each step: the hypothesis, what became of it, and what each stage cost."""

from __future__ import annotations

from typing import Any

import pytest
from search_stubs import PLACE, StubExecutor

from agent import RunStore, Search, SearchSettings
from agent.generator import Draft
from agent.hypothesis import Hypothesis
from harness.worker.model import Evaluation


class Claiming:
    """Answers with values of X and what is claimed of them: text of an answer, or data."""

    name = "claiming"
    hosted = False

    def __init__(self, *answers: tuple[int, str | Hypothesis]) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []

    def generate(self, request: Any) -> Draft:
        self.requests.append(request)
        x, said = self.answers.pop(0)
        source = f"class ModelNew:\n    X = {x}\n"
        if isinstance(said, Hypothesis):
            return Draft(source, said.text, claim=said)
        return Draft(source, said.splitlines()[0], raw=said)


def run(kb: Any, problem: str, *answers: tuple[int, str | Hypothesis], **settings: Any) -> Any:
    executor = settings.pop("executor", StubExecutor())
    chosen = SearchSettings(problem, **{"steps": len(answers), "drafts": 1, **settings})
    generator = Claiming(*answers)
    result = Search(kb, executor, chosen, generator=generator, place=PLACE).run()
    nodes = RunStore(kb).load(result.run_id).graph.candidates()
    return nodes, generator, executor


def test_each_node_keeps_its_hypothesis_and_the_verdict(kb, problem):
    said = "HYPOTHESIS: one pass\nBECAUSE: less traffic\nPREDICTED: 1.5x faster"
    nodes, _, _ = run(kb, problem, (50, said), (100, said), (101, Hypothesis("more", predicted=(2.0, 2.0))))
    first, second, third = (node.notes["verdict"] for node in nodes)
    assert nodes[0].notes["hypothesis"]["because"] == "less traffic"
    assert (first["word"], first["measured"]) == ("refuted", 1.0)  # a draft: against eager
    assert (second["word"], second["off"]) == ("confirmed", pytest.approx(1.0))  # 1.5 after 1.0
    assert second["text"].startswith("confirmed: predicted 1.50x, measured 1.50x")
    assert third["word"] == "refuted"


def test_a_failure_is_stopped_by_the_first_stage_that_sees_it(kb, problem):
    class Broken(Claiming):
        def generate(self, request: Any) -> Draft:
            return Draft("class ModelNew(:\n", "h")

    executor = StubExecutor()
    settings = SearchSettings(problem, steps=1, drafts=1)
    result = Search(kb, executor, settings, generator=Broken(), place=PLACE).run()
    (node,) = RunStore(kb).load(result.run_id).graph.candidates()
    assert (node.status, executor.requests) == ("compile_error", [])
    assert [(s["stage"], s["status"]) for s in node.evaluation["stages"]] == [("gate", "compile_error")]
    assert "syntax error in line 1" in node.diagnosis["error"]


def test_a_new_best_is_looked_at_closely(kb, problem):
    class Profiling(StubExecutor):
        def evaluate(self, request: Any) -> Evaluation:
            evaluation = super().evaluate(request)
            if request.profile != "none":
                assert request.screen
                evaluation.profile = {"level": request.profile}
            return evaluation

    nodes, _, executor = run(
        kb, problem, (60, "h"), (50, "h"), (70, "h"), profile="light", executor=Profiling()
    )
    assert [(n.evaluation["profile"] or {}).get("level") for n in nodes] == ["light", None, "light"]
    assert [s["stage"] for s in nodes[2].evaluation["stages"]] == ["gate", "full", "profile"]
    assert sum(r.screen for r in executor.requests) == 2
