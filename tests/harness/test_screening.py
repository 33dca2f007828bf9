"""A first look at a candidate: smaller sizes, no times, no evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import pytest

from harness import Evaluation
from harness.jobs import JobError, request_from_json
from harness.worker.guard.gate import look_at_text
from harness.worker.model import EvaluationRequest

PROBLEM = """
import torch
rows, cols = 64, 32
META = {"shapes": [{"name": "wide", "globals": {"cols": 96}}]}
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [torch.randn(rows, cols)]
def get_init_inputs():
    return []
"""
OWN = PROBLEM.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")


def test_a_first_look_takes_other_sizes_and_goes_no_further(evaluate: Callable[..., Evaluation]) -> None:
    seen = "assert x.shape == (2, 32); return x * 2"
    result = evaluate(
        PROBLEM, OWN.replace("return x * 2", seen), screen=True, sizes={"rows": 2}, timing_budget_s=1.0
    )
    assert result.status == "correct", result.reason
    assert [flag for flag in result.flags if flag["rule"] == "screened"]
    assert (result.timed, result.speedup, result.per_shape) == (False, None, [])
    assert "rounds" in result.spent_s
    assert not {"timing", "evidence", "other inputs"} & set(result.spent_s)


def test_a_first_look_finds_what_is_wrong(evaluate: Callable[..., Evaluation]) -> None:
    wrong = OWN.replace("x * 2", "x * 3")
    assert evaluate(PROBLEM, wrong, screen=True, sizes={"rows": 2}).status == "incorrect"


def test_sizes_that_the_problem_does_not_have_are_named(evaluate: Callable[..., Evaluation]) -> None:
    result = evaluate(PROBLEM, OWN, sizes={"depth": 2})
    assert result.status == "invalid_problem"
    assert "sets depth, which the problem does not define" in result.reason


def test_the_text_alone_can_condemn() -> None:
    assert look_at_text(OWN).status is None
    broken = look_at_text("class ModelNew(:\n")
    assert (broken.status, broken.reason[:24]) == ("compile_error", "syntax error in line 1: ")
    caught = look_at_text("import gc\n" + OWN.replace("return x * 2", "return gc.get_objects()[0]"))
    assert caught.status == "rejected"
    assert caught.flags[0]["severity"] == "reject"


def test_a_request_with_sizes_survives_the_way() -> None:
    request = EvaluationRequest("p", "c", screen=True, sizes={"rows": 2})
    assert request_from_json(asdict(request)) == request
    with pytest.raises(JobError, match="sizes cannot be"):
        request_from_json({"problem": "p", "candidate": "c", "sizes": {"rows": "2"}})
