"""`--precision`: what float32 is held to, and how less is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import Evaluation

Evaluate = Callable[..., Evaluation]

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
def get_inputs():
    return [torch.rand(64, 256), torch.rand(256, 64)]
def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
def lower(t):
    return {lower}
class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return lower(a) @ lower(b)
"""
TF32 = "(t.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)"
BFLOAT16 = "t.bfloat16().float()"


@pytest.mark.parametrize(
    ("lower", "precision", "status", "named"),
    [
        ("t", "strict", "correct", ""),
        (TF32, "strict", "incorrect", "TF32 or float16"),
        (TF32, "strict tf32", "incorrect", "TF32 or float16"),
        (TF32, "tf32", "correct", ""),
        (TF32, "as-declared", "incorrect", "TF32 or float16"),
        (TF32, "as-declared tf32", "correct", ""),
        (BFLOAT16, "strict", "incorrect", ""),
        (BFLOAT16, "tf32", "incorrect", "bfloat16"),
        ("t * 1.1", "tf32", "incorrect", ""),
    ],
)
def test_precision(evaluate: Evaluate, lower: str, precision: str, status: str, named: str) -> None:
    precision, _, declared = precision.partition(" ")
    declared = f"META = {{'precision': {declared!r}}}" if declared else ""
    result = evaluate(PROBLEM + declared, CANDIDATE.format(lower=lower), precision=precision)
    assert result.status == status, result.reason
    rules = [flag["rule"] for flag in result.flags]
    if named:
        assert f"less precise than float32: looks like {named} inside" in result.reason
        assert "precision-downgrade" in rules
    else:
        assert "precision-downgrade" not in rules or lower == BFLOAT16
    allowed = precision == "tf32" or (precision == "as-declared" and bool(declared))
    assert result.environment["precision"] == ("tf32" if allowed else "float32")


def test_both_sides_run_with_the_same_settings(evaluate: Evaluate) -> None:
    settings = "torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32"
    told = f"torch.tensor([float(x) for x in ({settings})]) + a @ b * 0"
    source = PROBLEM.replace("a @ b", told).replace("(256, 64)", "(256, 2)")
    for precision, value in (("strict", 0.0), ("tf32", 1.0)):
        fixed = f"return ({told} + {value}) / 2"
        candidate = CANDIDATE.format(lower="t").replace("return lower(a) @ lower(b)", fixed)
        assert evaluate(source, candidate, precision=precision).status == "correct"
