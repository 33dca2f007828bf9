"""The stages of an evaluation: a candidate that fails one is asked nothing further."""

from __future__ import annotations

from typing import Any

import pytest

from agent.cascade import Cascade, tiny_sizes

PROBLEM = """
import torch
batch, length, width = 4096, 512, 24
scale = width * 2
class Model(torch.nn.Module):
    def __init__(self, width): ...
def get_inputs():
    return [torch.randn(batch, length, width)]
def get_init_inputs():
    return [width]
"""
OWN = "import torch\nclass ModelNew(torch.nn.Module): ...\n"


class Harness:
    """Answers by a table of statuses: `tiny`, `full`, `profile`; keeps what it was asked."""

    def __init__(self, **statuses: str) -> None:
        self.statuses = statuses
        self.asked: list[dict[str, Any]] = []

    def __call__(self, _candidate: str, **changes: Any) -> dict[str, Any]:
        self.asked.append(changes)
        stage = "tiny" if changes.get("sizes") else "profile" if changes.get("screen") else "full"
        status = self.statuses.get(stage, "correct")
        speedup = 2.0 if (stage, status) == ("full", "correct") else None
        profile = {"kernels": []} if stage == "profile" else None
        return {
            "status": status,
            "reason": "so",
            "speedup": speedup,
            "profile": profile,
            "spent_s": {"build": 0.1},
        }

    def cascade(self, eager_ms: float = 500.0, **kwargs: Any) -> Cascade:
        return Cascade(self, PROBLEM, eager_ms=eager_ms, **kwargs)


def stages(verdict: dict[str, Any]) -> list[tuple[str, str]]:
    return [(stage["stage"], stage["status"]) for stage in verdict["stages"]]


def test_what_only_the_inputs_depend_on_shrinks():
    assert tiny_sizes(PROBLEM) == ({"batch": 64, "length": 64}, frozenset((4096, 512)))
    assert tiny_sizes(PROBLEM.replace("4096, 512", "3, 5")) == ({}, frozenset())
    assert tiny_sizes("def broken(") == ({}, frozenset())


def test_a_text_that_cannot_be_right_costs_no_worker():
    harness = Harness()
    verdict = harness.cascade().verdict("class ModelNew(:\n")
    assert (verdict["status"], stages(verdict)) == ("compile_error", [("gate", "compile_error")])
    assert not harness.asked


@pytest.mark.parametrize("status", ["compile_error", "incorrect", "timeout", "rejected"])
def test_a_failure_on_tiny_sizes_spares_the_full_ones(status):
    harness = Harness(tiny=status)
    verdict = harness.cascade().verdict(OWN)
    assert verdict["status"] == status
    assert verdict["reason"] == "so (with batch=64, length=64)"
    assert stages(verdict) == [("gate", "compiled"), ("tiny", status)]
    assert harness.asked == [{"screen": True, "sizes": {"batch": 64, "length": 64}, "timing_budget_s": 0.0}]
    assert verdict["stages"][1]["spent_s"] == {"build": 0.1}
    assert all(stage["seconds"] >= 0 for stage in verdict["stages"])


def test_who_refuses_tiny_sizes_is_judged_on_the_full_ones():
    harness = Harness(tiny="runtime_error")
    assert stages(harness.cascade().verdict(OWN))[1:] == [("tiny", "runtime_error"), ("full", "correct")]


def test_who_names_a_size_is_not_judged_on_another():
    assert stages(Harness(tiny="incorrect").cascade().verdict(OWN + "N = 512\n"))[1:] == [("full", "correct")]
    text = OWN + 'CPP = "float tile[512];"\n'
    assert stages(Harness(tiny="incorrect").cascade().verdict(text))[1:] == [("full", "correct")]


def test_where_little_is_saved_there_is_no_tiny_stage():
    assert stages(Harness().cascade(eager_ms=2.0).verdict(OWN))[1:] == [("full", "correct")]
    harness = Harness(tiny="invalid_problem")  # the reference does not take them
    cascade = harness.cascade()
    cascade.verdict(OWN)
    assert stages(cascade.verdict(OWN))[1:] == [("full", "correct")]
    assert stages(harness.cascade(on=False).verdict("class ModelNew(:\n")) == [("full", "correct")]


def test_only_a_new_best_is_profiled():
    harness = Harness()
    cascade = harness.cascade(eager_ms=1.0, profile="light")
    first = cascade.verdict(OWN, best=1.5, timing_budget_s=1.0)
    assert stages(first)[1:] == [("full", "correct"), ("profile", "correct")]
    assert (first["profile"], first["speedup"]) == ({"kernels": []}, 2.0)
    assert harness.asked == [{"timing_budget_s": 1.0}, {"profile": "light", "screen": True}]
    assert stages(cascade.verdict(OWN, best=3.0))[1:] == [("full", "correct")]
