"""The jobs and the table of benchmarks/gpu. Its kernels need a GPU; here they are only looked at."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "gpu"
PROBLEMS = sorted(path.parent for path in FOLDER.glob("*/problem.py") if path.parent.name != "crashes")
CRASHES = sorted(path for path in (FOLDER / "crashes").glob("*.py") if path.stem != "problem")


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a script of the folder as it is run: with its own folder first on the path."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def by_name(name: str) -> ModuleType:
        return __import__(name)

    yield by_name
    for name in ("jobs", "table", "traffic"):
        sys.modules.pop(name, None)


def classes(path: Path) -> set[str]:
    return {n.name for n in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(n, ast.ClassDef)}


def script(name: str, out: Path, *more: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(FOLDER / name), "--out", str(out), *more]
    subprocess.run(command, check=True, cwd=FOLDER.parents[1])
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def test_every_problem_has_a_candidate_and_a_job(tmp_path: Path) -> None:
    for folder in PROBLEMS:
        assert "Model" in classes(folder / "problem.py"), folder
        assert "ModelNew" in classes(folder / "candidate.py"), folder
    jobs = script("jobs.py", tmp_path / "jobs.jsonl")
    assert [job["id"] for job in jobs] == [folder.name for folder in PROBLEMS]
    for job in jobs:
        assert job["target"] == "nvidia:sm_90"
        assert (FOLDER.parents[1] / job["problem"]).samefile(FOLDER / job["id"] / "problem.py")
        assert (FOLDER.parents[1] / job["candidate"]).samefile(FOLDER / job["id"] / "candidate.py")


def test_jobs_are_requests(tmp_path: Path) -> None:
    from harness.jobs import request_from_json

    lines = script("jobs.py", tmp_path / "a.jsonl", "swiglu", "--target", "cpu")
    lines += script("jobs_crashes.py", tmp_path / "b.jsonl")
    for line in lines:
        del line["id"]
        request_from_json(line)
    assert lines[0]["target"] == "cpu"


def test_a_healthy_candidate_follows_every_crash(tmp_path: Path) -> None:
    jobs = script("jobs_crashes.py", tmp_path / "jobs.jsonl")
    healthy = [job for job in jobs if Path(job["candidate"]).stem == "healthy"]
    assert jobs[::2] == healthy
    assert [Path(job["candidate"]).stem for job in jobs[1::2]] == [
        path.stem for path in CRASHES if path.stem != "healthy"
    ]
    assert len({job["id"] for job in jobs}) == len(jobs)
    for path in CRASHES:
        assert "ModelNew" in classes(path), path


RESULTS = [
    {
        "id": "transpose",
        "wall_s": 4.21,
        "evaluation": {
            "status": "correct",
            "reason": "1.50x of eager",
            "speedups": {
                "eager": {"speedup": 1.5, "lo": 1.4, "hi": 1.6},
                "compile": {"speedup": 0.9, "lo": 0.8, "hi": 1.1},
            },
            "candidate_ms": {"median": 0.125, "p05": 0.12, "p95": 0.13, "n": 40},
            "custom_kernel_share": 1.0,
            "flags": [
                {"rule": "throttled", "severity": "warning", "detail": "clocks fell"},
                {"rule": "throttled", "severity": "warning", "detail": "again"},
                {"rule": "distribution-skipped", "severity": "info", "detail": ""},
            ],
            "target": "nvidia:sm_90",
            "device": "NVIDIA H200",
            "environment": {"torch": "2.11.0", "driver": "580.1"},
        },
    },
    {
        "id": "matmul_fp32",
        "wall_s": 1.0,
        "evaluation": {
            "status": "runtime_error",
            "reason": "first line |\nsecond line",
            "speedups": {},
            "candidate_ms": {"median": 0.5},
            "custom_kernel_share": None,
            "flags": [],
            "device": "",
        },
    },
]


def test_table(load: Any) -> None:
    table = load("table")
    moved = load("traffic").Traffic
    traffic = {"transpose": moved(400_000_000, 0), "matmul_fp32": moved(1_000, 1_000_000)}
    text = table.render(
        RESULTS, command="batch …", date="2026-11-30", copy_gb_s=4000.0, traffic_of=traffic.get
    )
    lines = text.splitlines()
    assert "`batch …`, 2026-11-30." in lines
    assert "NVIDIA H200 (nvidia:sm_90): driver 580.1, torch 2.11.0." in lines
    cells = ["correct", "1.50 [1.40, 1.60]", "0.90 [0.80, 1.10]", "0.1250", "80%", "100%", "throttled", "4.2"]
    assert "| transpose | " + " | ".join(cells) + " |" in lines
    # No share for what is bound by arithmetic; the reason of a failure cannot break the table.
    assert (
        "| matmul_fp32 | runtime_error: first line \\| second line | – | – | 0.5000 | – | – | – | 1.0 |"
        in lines
    )
    assert lines[-1] == (
        "2 jobs: 1 correct, 1 runtime_error. Lower end of the interval above 1: 1 against eager, "
        "0 against torch.compile."
    )
    assert "share of copy" not in table.render(RESULTS, command="", date="")


def test_traffic_counts_each_tensor_once_and_attention_as_its_products(load: Any) -> None:
    traffic = load("traffic").traffic
    assert traffic(FOLDER / "bias_gelu" / "problem.py").bytes == 4 * (2 * 8192 * 4096 + 4096)
    attention = traffic(FOLDER / "attention_causal_fp16" / "problem.py")
    assert attention.bytes == 2 * 4 * (4 * 16 * 2048 * 128)
    assert attention.flops == 2 * 2 * 4 * 16 * 2048 * 2048 * 128
