"""The admission test, duplicates, recommendation and staleness, with a judge that is told what to say."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from recorded_runs import Recorder, verdict
from search_stubs import StubExecutor

from agent.distil import distil, mark_stale, verify
from agent.distil.patterns import Kernel, parameters, with_parameters
from agent.distil.sizes import problem_identity, variants
from agent.distil.staleness import difference
from agent.errors import RunNotFound, SkillNotMeasurable
from harness.problem import Problem
from harness.target import get_target
from harness.worker import environment
from harness.worker.model import Evaluation, EvaluationRequest, GraphNode, ProblemFacts, TensorSpec
from ingest import ingest_paths
from kb import KnowledgeBase
from kb.privacy import admit

PROBLEM = """
ROWS = 64
META = {"notes": "32"}

class Model:
    '''scales rows'''
    def forward(self, x): return x * 3

def get_inputs():
    return [(ROWS, 128)]

def get_init_inputs():
    return []
"""
OTHER = PROBLEM.replace("x * 3", "x * 3 + x")
SOURCE = '''from harness.native import load_cpp

BLOCK = 32
CPP = r"""
constexpr int LANES = 8;
void k() { int b = LANES; { { } } }
"""


class ModelNew:
    pass
'''
Says = Callable[[tuple[int, ...], str], Evaluation]


def win(speedup: float = 2.0, **about: Any) -> Evaluation:
    return Evaluation(
        "correct",
        speedup=speedup,
        speedup_ci=(speedup * 0.9, speedup * 1.1),
        timed=True,
        device=environment.cpu_name(),
        environment=environment.facts(),
        **about,
    )


class Judge(StubExecutor):
    """Runs the problem's text for its sizes; what it says of them and the candidate is up to the test."""

    def __init__(self, says: Says = lambda *_: win()) -> None:
        super().__init__()
        self.says = says

    def describe(self, problem_source: str, name: str = "problem") -> ProblemFacts:
        specs = [TensorSpec("x", _sizes(problem_source), "float32", (1,))]
        ops = [GraphNode("mul", "aten.mul.Tensor", [], {}, specs)]
        return ProblemFacts(name, specs, [], [], specs, ops, [])

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        self.requests.append(request)
        return self.says(_sizes(request.problem), request.candidate)


def _sizes(problem: str) -> tuple[int, ...]:
    space: dict[str, Any] = {}
    exec(problem, space)
    return tuple(space["get_inputs"]()[0])


def winner(kb: KnowledgeBase, run_id: str = "run-1", problem: str = PROBLEM, **about: Any) -> str:
    """A recorded run whose second step is its best; its node's id."""
    run = Recorder(kb, run_id, problem)
    run.step(0, verdict(None, "incorrect"))
    about = {"source": SOURCE, **about}
    node = run.step(1, about.pop("evaluation", verdict(2.0)), **about)
    run.finish(2)
    return node.node_id


def test_a_winner_becomes_a_skill_that_coding_agents_can_read(kb: KnowledgeBase) -> None:
    node = winner(kb)
    found = distil(kb, Judge(), node)
    assert (found.outcome, found.state, found.name) == ("added", "candidate", "p-cpp")
    skill = kb.skill("p-cpp")
    _, front, body = skill.body.split("---\n", 2)
    meta = yaml.safe_load(front)
    assert set(meta) <= {"name", "description", "license", "metadata"}
    assert (meta["name"], skill.root.name, skill.target, skill.language) == ("p-cpp", "p-cpp", "cpu", "cpp")
    assert "idea 2" in body
    assert "idea 1" in body
    assert f"```python\n{SOURCE}```\n" in body, "a prompt shows this file alone"
    assert {p.name for p in skill.root.iterdir()} == {
        "SKILL.md", "skill.toml", "kernel.py", "problem.py", "evidence.json", "provenance.json"
    }  # fmt: skip
    assert (skill.root / "kernel.py").read_text() == SOURCE
    spec = tomllib.loads((skill.root / "skill.toml").read_text())
    assert spec["applies"]["operators"] == ["mul"]
    assert spec["applies"]["dtypes"] == ["float32"]
    assert (spec["applies"]["target"], spec["applies"]["architecture"]) == (
        "cpu",
        get_target("cpu").architecture,
    )
    assert spec["applies"]["devices"] == [environment.cpu_name()]
    assert spec["origin"] == {
        "run": "run-1", "node": node, "problem": "p", "identity": problem_identity(PROBLEM)
    }  # fmt: skip
    trail = json.loads((skill.root / "provenance.json").read_text())
    assert [entry["step"] for entry in trail] == [2, 1, 0]
    assert kb.blobs.text(trail[0]["artifacts"]["source"]) == SOURCE
    assert kb.blobs.text(trail[0]["artifacts"]["prompt"]) == "prompt of step 2"


def test_it_is_measured_on_fresh_seeds_and_at_other_sizes(kb: KnowledgeBase) -> None:
    winner(kb)
    judge = Judge(lambda sizes, _: win(0.8 if sizes == (64, 97) else 2.0))
    found = distil(kb, judge, "run-1")
    measured = [r for r in judge.requests if r.timing_budget_s]
    assert all(r.seed is None and r.rounds > 5 for r in measured)
    assert len({_sizes(r.problem) for r in measured}) == len(measured) == 3
    assert (64, 128) in {_sizes(r.problem) for r in measured}
    assert any(size % 2 for r in measured for size in _sizes(r.problem))
    # The conditions are those under which it won.
    wins = [r["shapes"][0] for r in found.evidence if r["speedup"] == 2.0]
    assert kb.skill("p-cpp").spec["applies"]["inputs"] == [
        {"min": [min(d) for d in zip(*wins, strict=True)], "max": [max(d) for d in zip(*wins, strict=True)]}
    ]


def at_own_sizes_only(status: str) -> Says:
    failed = Evaluation(status, reason="no")  # type: ignore[arg-type]
    return lambda sizes, _: win() if sizes == (64, 128) else failed


@pytest.mark.parametrize(
    ("about", "says", "reason"),
    [
        ({"compiler_made": True}, lambda *_: win(), "the compiler made it"),
        ({"evaluation": verdict(None, "incorrect")}, lambda *_: win(), "not correct: incorrect"),
        ({}, lambda *_: win(1.05), "win is not confirmed: 1.05x"),
        (
            {},
            lambda *_: Evaluation("incorrect", reason="off by one"),
            "not confirmed: incorrect: off by one",
        ),
        ({}, at_own_sizes_only("incorrect"), "wrong at other sizes"),
        ({}, at_own_sizes_only("rejected"), "wrong at other sizes"),
        ({}, at_own_sizes_only("runtime_error"), "its own sizes alone"),
        ({"problem": PROBLEM.replace("64", "8").replace("128", "4")}, lambda *_: win(), "no other sizes"),
    ],
)
def test_what_fails_the_test_is_not_stored(
    kb: KnowledgeBase, about: dict[str, Any], says: Says, reason: str
) -> None:
    found = distil(kb, Judge(says), winner(kb, **about))
    assert (found.outcome, found.name) == ("rejected", None)
    assert reason in found.reason
    assert kb.skills() == []
    assert not list((kb.home / "skills").glob("*"))


def test_sizes_that_the_problem_names_are_other_sizes(kb: KnowledgeBase) -> None:
    shapes = [{"name": "main", "speedup": 2.0}, {"name": "long", "speedup": 2.1}]
    small = PROBLEM.replace("64", "8").replace("128", "4")
    found = distil(kb, Judge(lambda *_: win(per_shape=shapes)), winner(kb, problem=small))
    assert (found.outcome, len(found.evidence)) == ("added", 1)


def test_only_right_values_are_in_the_parameter_space(kb: KnowledgeBase) -> None:
    winner(kb)
    distil(kb, Judge(lambda _, c: Evaluation("incorrect") if "BLOCK = 16" in c else win()), "run-1")
    assert kb.skill("p-cpp").spec["parameters"] == {
        "BLOCK": {"values": [32, 64], "default": 32},
        "LANES": {"values": [4, 8, 16], "default": 8},
    }


RENAMED = SOURCE.replace("CPP = ", "TEXT = ").replace("BLOCK = 32", "BLOCK = 64  # larger")


def test_the_same_again_strengthens_what_is_there(kb: KnowledgeBase) -> None:
    distil(kb, Judge(), winner(kb))
    before = len(kb.skill("p-cpp").evidence)
    again = distil(kb, Judge(), winner(kb, "run-2", PROBLEM.replace("64", "256"), source=RENAMED))
    assert (again.outcome, again.name) == ("strengthened", "p-cpp")
    assert again.state == "candidate", "other sizes of its own problem are no other problem"
    third = distil(kb, Judge(), winner(kb, "run-3", OTHER, source=RENAMED))
    assert (third.outcome, third.state) == ("strengthened", "recommended")
    assert [s.name for s in kb.skills()] == ["p-cpp"]
    assert len(kb.skill("p-cpp").evidence) > before
    assert {e["node"] for e in kb.skill("p-cpp").evidence} == {"run-1-0002", "run-2-0002", "run-3-0002"}
    assert kb.skill("p-cpp").version == "1"
    other = distil(kb, Judge(), winner(kb, "run-4", source=SOURCE.replace("int b = LANES", "int b = -LANES")))
    assert (other.outcome, other.name) == ("added", "p-cpp-2")


def test_only_what_won_elsewhere_is_recommended(kb: KnowledgeBase) -> None:
    distil(kb, Judge(), winner(kb))

    def shown() -> list[str]:
        return [s.name for s in kb.find_skills("mul rows idea", target="cpu")]

    assert shown() == []
    lost = verify(kb, Judge(lambda *_: win(0.9)), "p-cpp", [Problem("other", OTHER)])
    assert (lost.state, lost.holds) == ("candidate", False)
    won = verify(kb, Judge(), "p-cpp", [Problem("other", OTHER)])
    assert (won.state, won.holds) == ("recommended", True)
    assert {r["problem"] for r in won.measured} == {"p", "other"}
    assert shown() == ["p-cpp"]


def test_another_machine_makes_evidence_stale_until_it_is_measured_again(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    distil(kb, Judge(), winner(kb))
    verify(kb, Judge(), "p-cpp", [Problem("other", OTHER)])
    assert mark_stale(kb) == 0
    facts = environment.facts() | {"compiler": "g++ 99"}
    monkeypatch.setattr(environment, "facts", lambda: facts)
    measurements = len(kb.skill("p-cpp").evidence)
    assert mark_stale(kb) == measurements
    assert {e["stale"].split(" was ")[0] for e in kb.skill("p-cpp").evidence} == {"compiler"}
    assert kb.skill("p-cpp").state == "stale"
    assert kb.find_skills("mul rows idea", target="cpu") == []
    again = verify(kb, Judge(), "p-cpp")
    assert (again.state, again.stale, len(again.measured)) == ("recommended", 0, measurements)
    monkeypatch.undo()
    assert mark_stale(kb) == measurements


@pytest.mark.parametrize(
    ("there", "language", "reason"),
    [
        ({}, "cpp", None),
        ({"device": "Other CPU"}, "cpp", "device was Other CPU, is This CPU"),
        ({"compiler": "g++ 11"}, "cpp", "compiler was g++ 11, is g++ 12"),
        ({"driver": "550"}, "triton", "driver was 550, is 560"),
        ({"triton": "3.6"}, "triton", "triton was 3.6, is 3.7"),
        ({"triton": "3.6"}, "cpp", None),
        ({"python": "3.10", "os": "else"}, "cpp", None),
        ({"compiler": None}, "cpp", None),
    ],
)
def test_what_makes_evidence_stale(there: dict[str, Any], language: str, reason: str | None) -> None:
    here = {"device": "This CPU", "compiler": "g++ 12", "driver": "560", "triton": "3.7", "python": "3.11"}
    both = {**here, **there}
    record = {"device": both.pop("device"), "environment": both}
    assert difference(record, here, language) == reason


def test_what_local_only_passages_shaped_stays_here(kb: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "tiles.md").write_text("# Tiles\nseven by seven")
    ingest_paths(kb, [tmp_path / "secret"], scope="cpu", visibility="local-only")
    (hit,) = kb.query("tiles seven", k=1).hits
    distil(kb, Judge(), winner(kb, chunks=[(hit.chunk_id, hit.citation)]))
    skill = kb.skill("p-cpp")
    assert skill.local_only
    assert admit([skill], hosted=True) == ([], [skill])


def test_what_failed_beside_it_is_told_unless_it_must_stay_here(kb: KnowledgeBase) -> None:
    run = Recorder(kb, "run-1", PROBLEM)
    run.step(0, verdict(2.0), memory="none", source=SOURCE)
    run.step(0, verdict(None, "incorrect"), memory="none")
    run.step(0, verdict(None, "timeout"), memory="none", notes={"local_only": True})
    run.finish(1)
    distil(kb, Judge(), "run-1")
    skill = kb.skill("p-cpp")
    assert not skill.local_only
    assert "- idea 2: incorrect" in skill.body
    assert "idea 3" not in skill.body


def test_licences_of_the_sources_are_those_of_the_skill(kb: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "rows.md").write_text("---\nlicense: MIT\n---\n# Rows\nkeep rows resident")
    ingest_paths(kb, [tmp_path / "docs"], scope="cpu")
    (hit,) = kb.query("rows resident", k=1).hits
    distil(kb, Judge(), winner(kb, chunks=[(hit.chunk_id, hit.citation)]))
    assert "\nlicense: MIT\n" in kb.skill("p-cpp").body


def test_wrong_references_are_named(kb: KnowledgeBase, tmp_path: Path) -> None:
    with pytest.raises(RunNotFound):
        distil(kb, Judge(), "nope")
    run = Recorder(kb, "run-1", PROBLEM)
    run.step(0, verdict(None, "incorrect"))
    with pytest.raises(RunNotFound, match="has no winner"):
        distil(kb, Judge(), "run-1")
    folder = tmp_path / "words"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: words\ndescription: only words\n---\n\n# Words\n\ntext\n")
    ingest_paths(kb, [folder], scope="cpu")
    with pytest.raises(SkillNotMeasurable, match="words is text"):
        verify(kb, Judge(), "words")


def test_sizes_change_where_they_are_sizes() -> None:
    source = "N = 64\nEPS = 1e-5\nMETA = {'a': 64}\ndef get_inputs():\n    return f(N, 96, dim=1), 'é', 96\n"
    found = dict(variants(source))
    assert "N = 49\n" in found["odd-64"]
    assert "f(N, 96, dim=1)" in found["odd-64"]
    assert found["half-96"] == source.replace("96", "48")
    assert "{'a': 64}" in found["odd-all"]
    assert all("1e-5" in text and "dim=1" in text for text in found.values())


def test_one_problem_at_other_sizes_is_one_problem() -> None:
    resized = PROBLEM.replace("64", "512").replace("128", "7").replace('"32"', '"other"')
    assert problem_identity(resized) == problem_identity(PROBLEM.replace("ROWS", "HEIGHT"))
    assert problem_identity(OTHER) != problem_identity(PROBLEM)


def test_parameters_are_named_integers() -> None:
    text = "BLOCK = 32  # rows\nONE = 1\nname = 4\n#define TILE 16\n static constexpr int64_t WARPS = 4;\n"
    assert parameters(text) == {"BLOCK": 32, "TILE": 16, "WARPS": 4}
    changed = with_parameters(text, {"TILE": 8, "BLOCK": 64})
    assert re.findall(r"BLOCK = 64  # rows|#define TILE 8|WARPS = 4;|name = 4", changed) == [
        "BLOCK = 64  # rows", "name = 4", "#define TILE 8", "WARPS = 4;"
    ]  # fmt: skip
    assert with_parameters(text, parameters(text)) == text
    assert Kernel(text).fingerprint == Kernel(changed).fingerprint
