"""Requests and verdicts as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest

from harness.jobs import JobError, plain, request_from_json
from harness.worker.model import EvaluationRequest


def test_a_request_survives_the_way() -> None:
    request = EvaluationRequest("p", "c", seed=3, threads=2, timing_budget_s=1, baseline="compile")
    assert request_from_json(asdict(request)) == request


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"colour": "red"}, "unknown fields: colour"),
        ({"candidate": None}, "candidate cannot be 'None'"),
        ({"rounds": True}, "rounds cannot be"),
        ({"rounds": 2.5}, "rounds cannot be"),
        ({"timing_budget_s": math.nan}, "timing_budget_s cannot be"),
        ({"baseline": ["eager"]}, "baseline cannot be"),
        ({"policy": "any"}, "policy cannot be"),
    ],
)
def test_what_is_no_request_is_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(JobError, match=text):
        request_from_json({"problem": "p", "candidate": "c", **change})


def test_missing_parts_and_other_shapes() -> None:
    with pytest.raises(JobError, match="missing fields: candidate"):
        request_from_json({"problem": "p"})
    with pytest.raises(JobError, match="JSON object"):
        request_from_json([])


def test_json_has_no_infinity() -> None:
    assert plain({"a": [1.5, math.inf, (math.nan, None)]}) == {"a": [1.5, None, [None, None]]}
