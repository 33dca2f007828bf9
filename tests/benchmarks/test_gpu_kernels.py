"""The kernels of benchmarks/gpu at sizes that the interpreter can take: whole tiles and odd remainders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.executor import LocalExecutor
from harness.worker.model import EvaluationRequest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "gpu"

# Values for the sizes that a problem draws its inputs by, in the order in which they stand in its file.
SIZES: dict[str, list[tuple[int, ...]]] = {
    "adamw_step": [(3000,)],
    "attention_causal_fp16": [(1, 2, 256, 64), (1, 2, 333, 32), (2, 1, 5, 16)],
    "batchnorm_relu": [(2, 3, 50, 50), (2, 5, 3, 7)],
    "bias_gelu": [(3, 4096), (5, 5000), (4, 7)],
    "bmm_fp16": [(2, 128, 64, 128), (3, 70, 100, 130)],
    "concat_silu": [(3, 700, 1700), (5, 3, 5)],
    "cross_entropy": [(5, 9000), (1030, 11)],
    "cumsum_rows": [(3, 256), (2, 37), (1, 4500)],
    "embedding_layernorm": [(9, 50, 128), (9, 50, 37)],
    "gelu_residual": [(3, 1000)],
    "gemv_bf16": [(1, 4096, 64), (3, 300, 71)],
    "groupnorm_silu": [(2, 8, 2, 16, 16), (2, 6, 3, 5, 7), (1, 6, 2, 100, 90)],
    "huber_loss": [(3000,), (1057 * 2048 + 5,)],
    "int8_linear": [(16, 512, 64), (5, 300, 70), (70, 520, 40)],
    "l2_normalize": [(5, 1024), (3, 37)],
    "layernorm": [(5, 4096), (3, 37)],
    "leaky_relu_scale_clamp": [(2, 3, 50, 50), (2, 5, 3, 7)],
    "linear_gelu_fp16": [(256, 128, 512), (70, 100, 130)],
    "linear_residual_bf16": [(256, 128, 512), (300, 72, 520), (70, 104, 136)],
    "log_softmax": [(5, 4096), (3, 37)],
    "logsumexp": [(5, 4096), (3, 37)],
    "matmul_fp32": [(128, 64, 128), (70, 37, 130)],
    "mean_middle_dim": [(2, 70, 256), (2, 33, 37)],
    "rmsnorm_residual": [(5, 4096), (3, 37)],
    "rotary_embedding": [(2, 5, 4, 2, 32), (2, 5, 3, 1, 10)],
    "row_max": [(3, 64), (3, 37)],
    "small_layernorm_silu": [(5, 768)],
    "small_mlp": [(128, 64, 128, 10), (37, 50, 70, 10)],
    "small_mse_loss": [(64, 128), (100, 128)],
    "softmax_long_rows": [(3, 40000), (2, 100)],
    "softmax_scale_mask": [(2, 3, 4, 512), (2, 3, 5, 37)],
    "swiglu": [(3, 640), (5, 33)],
    "top1_gating": [(70, 64), (5, 7)],
    "transpose": [(2, 64, 128), (2, 37, 101)],
    "var_mean": [(5, 4096), (3, 37)],
}
CASES = [(name, sizes) for name, several in SIZES.items() for sizes in several]


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    with LocalExecutor(tmp_path_factory.mktemp("cache")) as executor:
        yield executor


def resized(problem: str, sizes: tuple[int, ...]) -> str:
    values = iter(sizes)
    text = re.sub(r"(?m)^([a-z]\w*) = [\d_* ]+$", lambda m: f"{m[1]} = {next(values)}", problem)
    assert next(values, None) is None, "more sizes than the problem has"
    return text


def test_every_problem_has_sizes() -> None:
    assert sorted(SIZES) == sorted(path.parent.name for path in FOLDER.glob("*/candidate.py"))


@pytest.mark.full
@pytest.mark.parametrize(("name", "sizes"), CASES, ids=[f"{n}-{'x'.join(map(str, s))}" for n, s in CASES])
def test_agrees_with_the_reference(executor: LocalExecutor, name: str, sizes: tuple[int, ...]) -> None:
    problem = (FOLDER / name / "problem.py").read_text(encoding="utf-8")
    candidate = (FOLDER / name / "candidate.py").read_text(encoding="utf-8")
    limits = {"build_limit_s": 240.0, "run_limit_s": 120.0, "timing_budget_s": 0.0}
    request = EvaluationRequest(resized(problem, sizes), candidate, **limits)
    evaluation = executor.evaluate(request)
    assert evaluation.status == "correct", evaluation.reason + evaluation.log
