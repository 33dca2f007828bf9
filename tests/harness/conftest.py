"""One executor for all harness tests: evaluations are isolated from each other by design, and that is
tested too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import Evaluation, EvaluationRequest, LocalExecutor
from harness.target import get_target

HEADER = "import torch\nimport torch.nn as nn\n"

NORM = (
    HEADER
    + """
class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
    def forward(self, x):
        return torch.relu(self.ln(x))
def get_inputs():
    return [torch.rand(64, 128)]
def get_init_inputs():
    return [128]
"""
)
NORM_CANDIDATE = NORM.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")


@pytest.fixture(scope="session")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    with LocalExecutor(tmp_path_factory.mktemp("cache")) as running:
        yield running


@pytest.fixture
def evaluate(executor: LocalExecutor) -> Callable[..., Evaluation]:
    """Evaluates without timing, unless a test asks for it."""

    def run(problem: str, candidate: str, **settings: object) -> Evaluation:
        return executor.evaluate(
            EvaluationRequest(problem, candidate, **{"timing_budget_s": 0.0, **settings})
        )

    return run


@pytest.fixture
def body() -> Callable[..., str]:
    """A candidate for NORM with other statements in forward, in the constructor or at module level."""

    def make(forward: str = "return torch.relu(self.ln(x))", init: str = "", top: str = "") -> str:
        indented = "\n".join("        " + line for line in forward.splitlines())
        more = "\n".join("        " + line for line in init.splitlines())
        return (
            f"{HEADER}import os, sys, time\n{top}\nclass ModelNew(nn.Module):\n    def __init__(self, dim):\n"
            "        super().__init__()\n        self.ln = nn.LayerNorm(dim)\n        self.calls = 0\n"
            f"{more}\n"
            f"    def forward(self, x):\n        self.calls += 1\n{indented}\n"
        )

    return make


@pytest.fixture
def compiled(executor: LocalExecutor) -> Callable[..., Evaluation]:
    """Evaluates for a device that is not here."""
    usual = (Path(__file__).parent / "samples" / "crosscompile" / "problem.py").read_text()

    def run(candidate: str, target: str = "nvidia:sm_90", **settings: object) -> Evaluation:
        texts = settings.pop("texts", None)
        settings["emit"] = texts is not None
        if get_target(target).available()[0]:
            pytest.skip("the device is here")
        problem = str(settings.pop("problem", usual))
        request = EvaluationRequest(problem, candidate, target=target, **settings)  # type: ignore[arg-type]
        result = executor.evaluate(request)
        if isinstance(texts, Path):
            result.write_emitted(texts)
        assert result.emitted == {}
        return result

    return run


@pytest.fixture(scope="session")
def norm_problem() -> str:
    return NORM


@pytest.fixture(scope="session")
def norm_candidate() -> str:
    return NORM_CANDIDATE


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).resolve().parents[2]
