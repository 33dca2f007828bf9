"""The search loop with a deterministic judge: steps, memory, verification, stop rules, interruption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from search_stubs import PLACE, PROBLEM, StubExecutor, StubGenerator, graph_of

from agent import RunStore, Search, SearchResult, SearchSettings
from agent.errors import EvaluationUnavailable, RunBusy, RunNotFound, SettingsInvalid
from agent.events import Evaluated, Generated, RunStarted, Skipped, Stopped, Verifying
from agent.generator import Draft
from agent.graph import SearchGraph, SearchNode
from agent.judge import UNJUDGED_LIMIT
from agent.memory import failed_attempts, parent_context
from agent.novelty import genome_digest, program_digest
from harness.errors import ProblemError
from harness.worker.model import Evaluation
from ingest import ingest_paths
from kb.errors import ModelError
from kb.tables import Event


def search(kb: Any, problem: str, **kwargs: Any) -> SearchResult:
    parts = {"executor": StubExecutor(), "generator": StubGenerator(), "place": PLACE}
    for name in (*parts, "on_event"):
        if name in kwargs:
            parts[name] = kwargs.pop(name)
    settings = SearchSettings(problem, **{"steps": 12, **kwargs})
    return Search(kb, parts.pop("executor"), settings, **parts).run()


class Scripted:
    """Answers with the given values of X, marked as compiler-made where told."""

    name = "scripted"
    hosted = False

    def __init__(self, *values: int, compiler: tuple[int, ...] = ()) -> None:
        self.values = list(values)
        self.compiler = compiler
        self.requests: list[Any] = []

    def generate(self, request: Any) -> Draft:
        self.requests.append(request)
        x = self.values.pop(0)
        return Draft(f"class ModelNew:\n    X = {x}\n", f"x = {x}", compiler_made=x in self.compiler)


def test_a_search_ends_with_a_verified_winner(kb, problem):
    executor, seen = StubExecutor(), []
    result = search(kb, problem, executor=executor, on_event=seen.append)
    run = RunStore(kb).load(result.run_id)
    winner = run.graph.node(result.best.node_id)
    assert result.best.verified
    assert result.best.speedup == winner.speedup == max(n.speedup for n in run.graph if n.correct)
    assert result.best.baselines == {"eager_ms": 2.0, "compile_ms": 1.5}
    assert run.graph.root.evaluation["baselines"]["compile_ms"] == 1.5
    assert Path(result.best.path).read_text() == RunStore(kb).source(winner)
    assert result.steps == run.info.steps == 12
    assert result.valid == sum(n.correct for n in run.graph.candidates())
    assert [r.measure_compile for r in executor.requests].count(True) == 1
    assert executor.requests[-1].measure_compile
    assert executor.requests[-1].timing_budget_s > executor.requests[0].timing_budget_s
    assert (run.info.state, run.info.stop_reason) == ("finished", result.stop_reason)
    assert isinstance(seen[0], RunStarted)
    assert isinstance(seen[-1], Stopped)
    kinds = [type(event) for event in seen]
    assert kinds.count(Evaluated) + kinds.count(Skipped) == 12
    assert kinds.count(Verifying) == 1
    assert json.loads(json.dumps(result.to_json()))["best"]["speedup"] == result.best.speedup


def test_a_run_is_reproducible_from_its_seed(kb, problem):
    runs = [graph_of(kb, search(kb, problem, seed=seed).run_id) for seed in (3, 3, 4)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize("policy", ["greedy", "evolutionary"])
def test_the_parent_shapes_prompt_and_request(kb, problem, policy):
    generator = StubGenerator()
    result = search(kb, problem, generator=generator, policy=policy, steps=15)
    run = RunStore(kb).load(result.run_id)
    drafts, rest = generator.requests[:4], generator.requests[4:]
    assert all(r.parent is None for r in drafts)
    assert all("independent draft" in r.prompt.slots["parent"] for r in drafts)
    expanded = [r for r in rest if r.parent is not None]
    assert len(expanded) > 8
    for request in expanded:
        assert request.parent.source.strip() in request.prompt.slots["parent"]
        assert request.parent.diagnosis["bottleneck"] in request.prompt.slots["diagnosis"]
    nodes = {n.prompt_sha for n in run.graph.candidates()}
    assert nodes <= {r.prompt.digest for r in generator.requests}
    node = run.graph.candidates()[-1]
    assert RunStore(kb).prompt(node) in [r.prompt.prompt for r in generator.requests]


def test_a_program_is_judged_once(kb, problem):
    executor, seen = StubExecutor(), []
    search(kb, problem, executor=executor, generator=Scripted(20, 20, 30), steps=3, on_event=seen.append)
    step_requests = [r for r in executor.requests if not r.measure_compile]
    assert len(step_requests) == 2
    skipped = [e for e in seen if isinstance(e, Skipped)]
    assert [(s.step, s.outcome, s.reason) for s in skipped] == [
        (2, "duplicate", "the same program as step 1")
    ]


def test_the_generator_learns_what_was_tried(kb, problem):
    generator = StubGenerator()
    search(kb, problem, generator=generator, steps=10)
    assert generator.requests[0].tried == frozenset()
    for request in generator.requests[1:]:
        if request.parent is not None:
            assert genome_digest(request.parent.genome) in request.tried
            assert program_digest(request.parent.source) in request.tried


def test_what_was_retrieved_is_recorded_with_the_node(kb, problem, tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "memory.md").write_text(
        "# Memory bandwidth\n\nFewer passes over memory make a kernel faster.\n"
    )
    ingest_paths(kb, [folder], scope="cpu")
    result = search(kb, problem, steps=5)
    store = RunStore(kb)
    for node in store.load(result.run_id).graph.candidates():
        uses = store.prompt_uses(node.node_id)
        assert [use["citation"] for use in uses] == ["memory.md:1-3 § Memory bandwidth"]
        assert uses[0]["citation"] in store.prompt(node)
        assert uses[0]["chunk_id"]


def test_failures_of_siblings_reach_the_next_prompt(kb, problem):
    generator = Scripted(60, 62, 63, 61)  # correct, compile error (62 % 17 == 11), incorrect, slower
    search(kb, problem, generator=generator, steps=4, drafts=1)
    told = generator.requests[3].prompt.slots["failed"]
    assert "step 2, compile_error: x = 62 (error: no such thing)" in told
    assert "step 3, incorrect" in told


def test_answers_without_a_candidate_are_kept(kb, problem):
    result = search(kb, problem, steps=30)
    run = RunStore(kb).load(result.run_id)
    empty = [e.payload for e in run.events if e.payload.get("outcome") == "no_candidate"]
    assert empty
    assert all(kb.blobs.text(p["raw_sha"]) == "hm" and p["error"] == "nothing came to mind" for p in empty)
    assert result.tokens == run.info.tokens == 6 * len(empty) + 12 * (30 - len(empty))


def test_unknown_cost_is_not_zero(kb, problem):
    class Unpriced(Scripted):
        def generate(self, request: Any) -> Draft:
            return Draft("class ModelNew:\n    X = 50\n", "h", cost_usd=None)

    assert search(kb, problem, generator=Unpriced(), steps=1).cost_usd is None
    assert search(kb, problem, steps=1).cost_usd == 0.0


def test_compiler_made_code_never_wins_over_anything_else(kb, problem):
    result = search(kb, problem, generator=Scripted(90, 60, compiler=(90,)), steps=2)
    assert result.best.speedup == pytest.approx(1.1)
    assert not result.best.compiler_made
    only = search(kb, problem, generator=Scripted(90, compiler=(90,)), steps=1, target_speedup=1.0)
    assert only.best.compiler_made
    assert "only the compiler's own code is correct" in only.notes[0]
    assert only.stop_reason.startswith("steps")  # its speedup does not reach a target


def test_a_winner_that_fails_the_final_look_is_passed_over(kb, problem):
    class Strict(StubExecutor):
        def evaluate(self, request: Any) -> Evaluation:
            if request.measure_compile and "X = 90" in request.candidate:
                return Evaluation("incorrect", "wrong on other inputs")
            return super().evaluate(request)

    result = search(kb, problem, executor=Strict(), generator=Scripted(90, 60), steps=2)
    assert result.best.speedup == pytest.approx(1.1)
    fallen = next(n for n in RunStore(kb).load(result.run_id).graph if n.step == 1)
    assert (fallen.status, fallen.fitness) == ("incorrect", 0.0)
    assert fallen.notes["first_evaluation"]["speedup"] == pytest.approx(1.4)


def test_a_lucky_winner_is_measured_again_and_loses(kb, problem):
    class Lucky(StubExecutor):
        def evaluate(self, request: Any) -> Evaluation:
            evaluation = super().evaluate(request)
            if request.measure_compile and "X = 90" in request.candidate:
                evaluation.speedup, evaluation.speedup_ci = 0.9, (0.85, 0.95)
            return evaluation

    result = search(kb, problem, executor=Lucky(), generator=Scripted(90, 60), steps=2)
    assert result.best.speedup == pytest.approx(1.1)
    assert result.best.step == 2
    assert RunStore(kb).best(result.run_id).step == 2


def test_nothing_correct(kb, problem):
    result = search(kb, problem, generator=Scripted(11, 12), steps=2)
    assert result.best is None
    assert result.valid == 0
    assert result.notes == ("no candidate was correct",)


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [
        ({"steps": 3}, "steps: 3 of 3"),
        ({"target_speedup": 0.6, "steps": 50}, "target_speedup: "),
        ({"patience": 5, "steps": 500, "generator": StubGenerator(limit=30)}, "no_progress: "),
        ({"time_limit_s": 0.0001, "steps": 50}, "time: "),
        ({"steps": 50, "generator": StubGenerator(limit=0)}, "exhausted: "),
    ],
)
def test_stop_reasons(kb, problem, kwargs, reason):
    assert search(kb, problem, **kwargs).stop_reason.startswith(reason)


def test_an_invalid_problem_stores_nothing(kb, tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("x = 1\n")
    with pytest.raises(ProblemError):
        search(kb, str(bad))
    assert RunStore(kb).list_runs() == []


def test_ctrl_c_keeps_what_is_done_and_the_run_goes_on(kb, problem):
    whole = search(kb, problem)

    def stop_at_five(event: Any) -> None:
        if isinstance(event, Generated) and event.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(kb, problem, on_event=stop_at_five)
    run = RunStore(kb).list_runs()[0]
    assert (run.state, run.steps) == ("interrupted", 4)
    result = Search.resume(kb, StubExecutor(), run.run_id, generator=StubGenerator(), place=PLACE)
    assert graph_of(kb, result.run_id) == graph_of(kb, whole.run_id)
    again = Search.resume(kb, StubExecutor(), run.run_id, generator=StubGenerator(), place=PLACE)
    assert again == result


def test_a_model_that_fails_leaves_a_run_that_can_be_resumed(kb, problem):
    class Broken(StubGenerator):
        def generate(self, request: Any) -> Draft:
            if request.step == 3:
                raise ModelError("the provider rejected the key")
            return super().generate(request)

    with pytest.raises(ModelError):
        search(kb, problem, generator=Broken())
    run = RunStore(kb).list_runs()[0]
    assert (run.state, run.steps) == ("failed", 2)
    assert "rejected the key" in run.stop_reason
    result = Search.resume(kb, StubExecutor(), run.run_id, generator=StubGenerator(), place=PLACE)
    assert result.steps == 12


def test_the_harness_gets_a_second_chance_and_its_failure_is_no_verdict(kb, problem):
    class Flaky(StubExecutor):
        failures = 1

        def evaluate(self, request: Any) -> Evaluation:
            if self.failures:
                self.failures -= 1
                return Evaluation("harness_error", "no worker")
            return super().evaluate(request)

    assert search(kb, problem, executor=Flaky(), steps=2).valid == 2
    broken = Flaky()
    broken.failures = 99
    with pytest.raises(EvaluationUnavailable, match="no worker"):
        search(kb, problem, executor=broken)
    run = RunStore(kb).load("last")
    assert (run.info.state, run.info.steps) == ("failed", 3)
    assert [(n.status, n.fitness) for n in run.graph.candidates()] == [("harness_error", 0.0)] * 3
    assert run.info.tokens == 36
    result = Search.resume(kb, StubExecutor(), run.info.run_id, generator=StubGenerator(), place=PLACE)
    assert result.steps == 12
    assert result.best


def test_a_language_that_is_not_installed_is_no_broken_harness(kb, problem):
    class Elsewhere(StubExecutor):
        """The first four candidates are in a language that is not here."""

        def __init__(self) -> None:
            super().__init__()
            self.asked: list[str] = []

        def evaluate(self, request: Any) -> Evaluation:
            self.asked.append(request.candidate)
            if list(dict.fromkeys(self.asked)).index(request.candidate) < UNJUDGED_LIMIT + 1:
                missing = {"rule": "missing-package", "severity": "info", "detail": "cutlass"}
                return Evaluation("harness_error", "needs the CuTe DSL", flags=[missing])
            return super().evaluate(request)

    executor = Elsewhere()
    assert search(kb, problem, executor=executor, steps=6).steps == 6
    assert [executor.asked.count(source) for source in executor.asked[:4]] == [1] * 4  # no second chance


class Breaking(StubExecutor):
    """The harness falls over one candidate, every time."""

    def __init__(self, x: int, *, final: bool = False) -> None:
        super().__init__()
        self.marks = (f"X = {x}\n", final)

    def evaluate(self, request: Any) -> Evaluation:
        mark, final = self.marks
        if mark in request.candidate and (request.measure_compile or not final):
            return Evaluation("harness_error", "the worker died")
        return super().evaluate(request)


def test_a_candidate_that_breaks_the_harness_does_not_end_the_run(kb, problem):
    result = search(kb, problem, executor=Breaking(60), generator=Scripted(30, 60, 40), steps=3)
    assert result.best.speedup == pytest.approx(0.9)
    broken = RunStore(kb).load(result.run_id).graph.candidates()[1]
    assert (broken.status, broken.fitness) == ("harness_error", 0.0)


def test_a_winner_that_breaks_the_harness_is_passed_over_but_not_condemned(kb, problem):
    executor = Breaking(90, final=True)
    result = search(kb, problem, executor=executor, generator=Scripted(90, 60), steps=2)
    assert (result.best.step, result.best.verified) == (2, True)
    assert RunStore(kb).load(result.run_id).graph.candidates()[0].status == "correct"
    with pytest.raises(EvaluationUnavailable, match="the worker died"):
        search(kb, problem, executor=executor, generator=Scripted(90), steps=1)
    run_id = RunStore(kb).list_runs()[0].run_id
    again = Search.resume(kb, StubExecutor(), run_id, generator=Scripted(), place=PLACE)
    assert (again.best.step, again.best.verified) == (1, True)


def test_numbers_that_are_not_finite_do_not_spread(kb, problem):
    class Nan(StubExecutor):
        def evaluate(self, request: Any) -> Evaluation:
            evaluation = super().evaluate(request)
            evaluation.speedup, evaluation.speedup_ci = float("nan"), (float("nan"), float("inf"))
            evaluation.correctness = {"max_abs_err": float("nan")}
            return evaluation

    result = search(kb, problem, executor=Nan(), steps=3)
    json.dumps(result.to_json(), allow_nan=False)
    nodes = RunStore(kb).load(result.run_id).graph.candidates()
    assert all(n.fitness == 0.0 and n.speedup is None and n.speedup_ci is None for n in nodes)


def test_two_processes_cannot_work_on_one_run(kb, problem):
    def meddle(event: Any) -> None:
        if isinstance(event, Generated) and event.step == 3:
            run_id = RunStore(kb).list_runs()[0].run_id
            with pytest.raises(RunBusy, match="being worked on"):
                Search.resume(kb, StubExecutor(), run_id, generator=StubGenerator(), place=PLACE)

    result = search(kb, problem, on_event=meddle)
    assert result.steps == 12
    assert RunStore(kb).load(result.run_id).info.state == "finished"


def test_a_run_is_held_until_its_winner_is_verified(kb, problem):
    busy = []

    def meddle(event: Any) -> None:
        if isinstance(event, RunStarted | Verifying):
            run_id = RunStore(kb).list_runs()[0].run_id
            with pytest.raises(RunBusy, match="being worked on") as caught:
                Search.resume(kb, StubExecutor(), run_id, generator=StubGenerator(), place=PLACE)
            busy.append(caught)

    result = search(kb, problem, on_event=meddle)
    assert len(busy) == 2
    assert RunStore(kb).load(result.run_id).info.state == "finished"


@pytest.mark.parametrize("method", ["append", "amend", "finish"])
def test_who_lost_a_run_leaves_its_state_alone(kb, problem, monkeypatch, method):
    real = getattr(RunStore, method)

    def overtaken(self: Any, run_id: str, seq: int, *args: Any) -> Any:
        with kb.session() as session:
            session.add(Event(run_id=run_id, seq=seq, kind="note"))
            session.commit()
        return real(self, run_id, seq, *args)

    monkeypatch.setattr(RunStore, method, overtaken)
    with pytest.raises(RunBusy, match="continued by another process"):
        search(kb, problem, steps=3)
    run = RunStore(kb).list_runs()[0]
    assert (run.state, run.stop_reason) == ("running", "")


def test_what_local_only_passages_shaped_is_marked(kb, problem, tmp_path):
    (tmp_path / "memory.md").write_text("# Memory bandwidth\n\nFewer passes over memory.\n")
    ingest_paths(kb, [tmp_path / "memory.md"], scope="cpu")
    store, open_run = RunStore(kb), search(kb, problem, steps=3)
    assert not any(n.local_only for n in store.load(open_run.run_id).graph)
    ingest_paths(kb, [tmp_path / "memory.md"], visibility="local-only")
    # What was shared then is not any more.
    assert all(n.local_only for n in store.load(open_run.run_id).graph.candidates())
    run = store.load(search(kb, problem, steps=12).run_id)
    assert all(n.local_only for n in run.graph.candidates())
    node = run.graph.candidates()[-1]
    assert parent_context(node, "source")["local_only"]
    attempts = failed_attempts(run.graph, [], node.parent_id if node.parent_id else None, "siblings")
    assert all(a["local_only"] for a in attempts)
    hosted = StubGenerator()
    hosted.hosted = True
    run = store.load(search(kb, problem, steps=5, generator=hosted).run_id)
    assert not any(n.local_only for n in run.graph)


def test_children_without_a_time_are_no_failures():
    def node(step: int, **kwargs: Any) -> SearchNode:
        parent = "0" if step else None
        status = "correct" if step else "root"
        fields = {"parent_id": parent, "status": status, **kwargs}
        return SearchNode(
            node_id=str(step), step=step, generator="g", source_sha="", digest=str(step), **fields
        )

    graph = SearchGraph()
    for item in (
        node(0),
        node(1, fitness=1.5, speedup=1.5),
        node(2, parent_id="1"),
        node(3, parent_id="1", fitness=1.2, speedup=1.2),
        node(4, parent_id="1", status="incorrect"),
    ):
        graph.add(item)
    told = failed_attempts(graph, [], "1", "siblings")
    assert [(a["step"], a["outcome"]) for a in told] == [(3, "no faster"), (4, "incorrect")]


def test_runs_are_found_by_prefix(kb, problem):
    first, second = search(kb, problem, steps=1), search(kb, problem, steps=1)
    store = RunStore(kb)
    assert store.resolve(first.run_id) == first.run_id
    assert store.resolve("last") == second.run_id
    assert [r.run_id for r in store.list_runs()] == [second.run_id, first.run_id]
    for unknown in ("nope", "20", "", "%"):
        with pytest.raises(RunNotFound):
            store.resolve(unknown)


@pytest.mark.parametrize(
    "kwargs", [{"steps": 0}, {"patience": 0}, {"time_limit_s": -1.0}, {"drafts": 0}, {"policy": "nope"}]
)
def test_settings_out_of_range_are_refused(kb, problem, kwargs):
    with pytest.raises(SettingsInvalid):
        search(kb, problem, **kwargs)


@pytest.mark.parametrize("name", ["nope", ""])
def test_an_unknown_generator_is_refused(kb, problem, name):
    with pytest.raises(SettingsInvalid, match="unknown generator"):
        Search(kb, StubExecutor(), SearchSettings(problem, generator=name), place=PLACE)


def test_the_problem_is_stored_not_referred_to(kb, problem):
    result = search(kb, problem, steps=1)
    Path(problem).unlink()
    assert RunStore(kb).load(result.run_id).problem_source == PROBLEM
