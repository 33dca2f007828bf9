"""Evaluations on a real GPU: an honest kernel, a dishonest one, crashes, and what comes after them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness import Evaluation

TARGET = "nvidia:sm_{}{}".format(
    *(torch.cuda.get_device_capability() if torch.cuda.is_available() else (9, 0))
)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"
Judge = Callable[..., Evaluation]


@pytest.fixture
def judge(evaluate: Judge) -> Judge:
    def run(name: str, candidate: str | None = None, **settings: object) -> Evaluation:
        folder = FOLDER / name
        source = candidate or (folder / "candidate.py").read_text()
        settings = {"target": TARGET, "timing_budget_s": 1.0, **settings}
        return evaluate((folder / "problem.py").read_text(), source, **settings)

    return run


def crash(name: str) -> str:
    return (FOLDER / "crashes" / f"{name}.py").read_text()


def test_honest_kernel(judge: Judge) -> None:
    result = judge("layernorm")
    assert result.status == "correct", result.reason
    assert result.timed
    assert result.correctness is not None
    assert result.correctness["timed_checks"] > 50


@pytest.mark.parametrize("name", ["illegal_address", "device_assert", "out_of_memory", "host_segfault"])
def test_healthy_candidate_after_a_crash(judge: Judge, name: str) -> None:
    assert judge("crashes", crash(name)).status == "runtime_error"
    assert judge("crashes", crash("healthy")).status == "correct"


def test_kernel_that_never_ends(judge: Judge) -> None:
    assert judge("crashes", crash("never_ends"), run_limit_s=3.0).status == "timeout"
    assert judge("crashes", crash("healthy")).status == "correct"


def test_work_on_another_stream_is_named(judge: Judge) -> None:
    source = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            torch.add(x, x, out=out)
            out.add_(1)
        return out
"""
    result = judge("crashes", source)
    assert result.status == "rejected"
    assert "unfinished-output" in result.reason


def test_profile_names_the_kernel(judge: Judge) -> None:
    result = judge("layernorm", profile="light")
    assert result.custom_kernel_share == pytest.approx(1.0)
    assert result.profile is not None
    assert "norm" in result.profile["kernels"][0]["name"]
