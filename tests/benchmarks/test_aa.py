"""The A/A study: its candidates are the references, its table counts what was called."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def aa() -> ModuleType:
    spec = importlib.util.spec_from_file_location("aa_study", ROOT / "benchmarks" / "aa.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(problem: str, low: float | None, high: float | None, *flags: str) -> dict[str, Any]:
    status = "correct" if low is not None else "harness_error"
    return {
        **{"problem": problem, "status": status, "reason": "", "speedup": low, "low": low, "high": high},
        **{"flags": list(flags), "device": "a CPU", "environment": {"torch": "2.13"}},
    }


def test_candidates_differ_in_the_name_of_a_class_only(aa: ModuleType) -> None:
    source = "class Model(Base):\n    def __init__(self):\n        super(Model, self).__init__()\n"
    assert ast.dump(ast.parse(aa.renamed(source))) == ast.dump(ast.parse(source.replace("Model", "ModelNew")))
    assert aa.renamed("x = 'Model'") == "x = 'Model'"


def test_the_table_counts_intervals_beside_one(aa: ModuleType) -> None:
    rows = [row("a", 1.01, 1.1), row("a", 0.9, 1.1), row("b", 0.8, 0.9, "busy-machine"), row("b", None, None)]
    table = aa.render(rows, "python aa.py", "today")
    assert "| a | 2 | 1 | 0 |" in table
    assert "| b | 1 | 0 | 1 |" in table
    assert "Called a win or a loss: 2 of 3 (66.7%" in table
    assert "undisturbed machine 1 of 2" in table
    assert "Not timed: 1" in table


def test_confidence_of_a_share(aa: ModuleType) -> None:
    assert aa.upper(0, 0) == 1.0
    assert aa.upper(20, 400) == pytest.approx(0.0760, abs=1e-3)  # Wilson 1927


def test_results_of_a_batch_are_read_like_own_ones(aa: ModuleType, tmp_path: Path) -> None:
    evaluation = {"status": "correct", "reason": "", "speedup": 1.0, "speedup_ci": [0.9, 1.1], "flags": []}
    evaluation |= {"device": "a GPU", "environment": {}}
    file = tmp_path / "results.jsonl"
    line = {"id": "swiglu#3", "wall_s": 2.0, "evaluation": evaluation}
    file.write_text(json.dumps(line) + "\n" + json.dumps(row("b", 0.9, 1.1)) + "\n")
    assert [(r["problem"], aa.called(r)) for r in aa.read(file)] == [("swiglu", "equal"), ("b", "equal")]
    options = argparse.Namespace(out=tmp_path / "jobs.jsonl", count=3, target="cpu", budget=1.5)
    options.problems = sorted((ROOT / "examples" / "problems").glob("*.py"))[:2]
    aa.jobs(options)
    jobs = [json.loads(text) for text in options.out.read_text().splitlines()]
    assert [job["id"].partition("#")[2] for job in jobs] == ["0", "1", "2"]
    assert {job["timing_budget_s"] for job in jobs} == {1.5}
    assert "class ModelNew" in Path(jobs[0]["candidate"]).read_text()
