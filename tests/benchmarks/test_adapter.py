"""What the adapter that ships was trained on: no question of the benchmark, and none that asks the same."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kb import lexical

ROOT = Path(__file__).parents[2]
QUESTIONS = ROOT / "benchmarks" / "adapter" / "questions.jsonl"
TOOL = ROOT / "benchmarks" / "adapter" / "leakage.py"


@pytest.fixture(scope="module")
def leakage() -> ModuleType:
    spec = importlib.util.spec_from_file_location("leakage", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def benchmark() -> Path:
    shared = Path(os.environ.get("KERNELEVOLVE_SHARED") or ROOT.parent / "shared")
    if not shared.is_dir():
        pytest.skip(f"no sample material at {shared}")
    return shared / "retrieval" / "dev.jsonl"


def words(text: str) -> frozenset[str]:
    return frozenset(lexical.terms_of(text))


def test_no_training_question_shares_most_words_with_a_benchmark_query(
    leakage: ModuleType, benchmark: Path
) -> None:
    learnt = [words(q) for q in leakage.read_learnt(QUESTIONS)]
    assert len(learnt) > 7000
    for line in benchmark.read_text().splitlines():
        asked = words(json.loads(line)["query"])
        nearest = max(learnt, key=lambda known: len(asked & known) / len(asked | known))
        assert len(asked & nearest) / len(asked | nearest) < 0.5, (sorted(asked), sorted(nearest))


@pytest.mark.full  # 7,600 questions are embedded
def test_no_training_question_is_near_a_benchmark_query(benchmark: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(TOOL), str(benchmark), str(QUESTIONS)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_paraphrase_is_noticed(tmp_path: Path) -> None:
    bench = {"query": "How large may a tile in shared memory be?", "gold": [{"path": "a", "substring": "b"}]}
    (tmp_path / "bench.jsonl").write_text(json.dumps(bench))
    asked = {"at": "x.md:1", "q": ["What is the largest tile that fits in shared memory?", "Who wrote it?"]}
    (tmp_path / "asked.jsonl").write_text(json.dumps(asked))
    done = subprocess.run(
        [sys.executable, str(TOOL), str(tmp_path / "bench.jsonl"), str(tmp_path / "asked.jsonl")],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 1
    assert "largest tile" in done.stdout
