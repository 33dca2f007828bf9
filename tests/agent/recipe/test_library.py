"""The curated skills as data: moves that guidance can name, evidence that was measured."""

from __future__ import annotations

import hashlib
import re

import pytest

from agent.recipe import evidence
from agent.recipe.library import names, record
from agent.recipe.skills import LIBRARY, ExecutableSkill
from harness import LocalExecutor


def vocabulary() -> set[str]:
    text = (LIBRARY.parent / "constraints" / "moves.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))


def test_there_are_many_executable_skills() -> None:
    assert len(names()) >= 12


@pytest.mark.parametrize("name", names())
def test_parameters_have_defaults_among_values_and_known_moves(name: str) -> None:
    skill = ExecutableSkill(record(name))
    assert len(skill.parameters) >= 2
    for parameter in skill.parameters.values():
        assert parameter.default in parameter.values
        assert set(parameter.moves) <= vocabulary()
        for target in parameter.moves.values():
            assert target in (*parameter.values, "up", "down")
    assert set(skill.spec.get("realises", [])) <= vocabulary()


@pytest.mark.parametrize("name", names())
def test_evidence_belongs_to_the_problem_beside_it(name: str) -> None:
    (found,) = record(name).evidence
    problem = (LIBRARY / name / "problem.py").read_bytes()
    assert found["problem_sha256"] == hashlib.sha256(problem).hexdigest()
    assert found["status"] == "correct"
    assert found["speedup_ci"][0] <= found["speedup"] <= found["speedup_ci"][1]
    assert any(name in kernel for kernel in found["kernels"])


@pytest.mark.full
def test_evidence_can_be_measured_again(tmp_path) -> None:
    with LocalExecutor(tmp_path) as executor:
        found = evidence.measure(executor, "row-reduction", timing_s=0.5)
    assert found["status"] == "correct"
    assert found["baselines"]["compile_ms"] > 0
