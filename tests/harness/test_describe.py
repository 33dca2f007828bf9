"""Facts of a problem: the graph can be replayed from its JSON alone, which is what generators rely on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from harness import Evaluation, LocalExecutor, ProblemFacts
from harness.errors import ProblemError

PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        self.register_buffer("shift", torch.full((dim,), 0.5))
        self.register_buffer("table", torch.arange(4.0), persistent=False)
    def forward(self, x, ln, flag=None):
        a, b = torch.split(self.ln(x) + self.shift, 4, dim=-1)
        y = torch.nn.functional.gelu(a) * torch.tensor([1.0, 2.0, 3.0, 4.0]) + self.table
        return {"y": y + ln[0], "top": (b.topk(2, dim=-1)[1], 7)}
def get_inputs():
    return [torch.rand(3, 8), [torch.rand(4)], None]
def get_init_inputs():
    return [8]
META = {"ops": ["layer_norm", "gelu"], "notes": "inputs are in [0, 1)"}
"""


@pytest.fixture(scope="module")
def facts(executor: LocalExecutor) -> ProblemFacts:
    return executor.describe(PROBLEM, "sample")


def test_what_the_author_says_is_handed_on(facts: ProblemFacts) -> None:
    assert facts.ops == ["layer_norm", "gelu"]
    assert facts.notes == "inputs are in [0, 1)"


def test_interface(facts: ProblemFacts) -> None:
    assert facts.trace_error is None
    assert facts.name == "sample"
    assert [s.name for s in facts.inputs] == ["x", "ln_0"]
    assert [s.name for s in facts.parameters] == ["ln.weight", "ln.bias"]
    assert [s.name for s in facts.buffers] == ["shift"]
    assert [(s.shape, s.dtype) for s in facts.outputs] == [((3, 4), "float32"), ((3, 2), "int64")]
    assert facts.argument_names == ["x", "ln", "flag"]
    assert facts.input_structure == {"list": [{"t": 0}, {"list": [{"t": 1}]}, {"v": None}]}
    assert facts.output_structure == {"dict": [["y", {"t": 0}], ["top", {"tuple": [{"t": 1}, {"v": "int"}]}]]}
    assert sorted(len(v) for v in facts.constant_values.values()) == [4, 4]
    assert facts.eager_ms is not None
    assert facts.bytes_min >= 4 * (24 + 4 + 24 + 12) + 8 * 6
    assert not facts.flags


def test_json_round_trip(facts: ProblemFacts) -> None:
    assert ProblemFacts.from_json(json.loads(json.dumps(facts.to_json()))) == facts


def test_graph_replays_to_the_reference(facts: ProblemFacts) -> None:
    space: dict[str, Any] = {}
    exec(PROBLEM, space)
    torch.manual_seed(1)
    model, inputs = space["Model"](8), space["get_inputs"]()
    values: dict[str, Any] = dict(model.state_dict())
    values |= {"x": inputs[0], "ln_0": inputs[1][0]}
    values |= {n: torch.tensor(v) for n, v in facts.constant_values.items()}

    def value(item: Any) -> Any:
        if isinstance(item, list):
            return [value(i) for i in item]
        if isinstance(item, dict):
            ((kind, body),) = item.items()
            return values[body] if kind == "ref" else getattr(torch, body) if kind == "dtype" else body
        return item

    for node in facts.nodes:
        args = [value(a) for a in node.args]
        if node.op == "getitem":
            values[node.name] = args[0][args[1]]
        else:
            namespace, name, overload = node.op.split(".")
            operator = getattr(getattr(getattr(torch.ops, namespace), name), overload)
            values[node.name] = operator(*args, **{k: value(v) for k, v in node.kwargs.items()})
    got = [value(r) for r in facts.output_refs]
    want = model(*inputs)
    torch.testing.assert_close(got[0], want["y"])
    assert torch.equal(got[1], want["top"][0])


def test_names_are_unique(facts: ProblemFacts) -> None:
    named = [*facts.inputs, *facts.parameters, *facts.buffers, *facts.constants, *facts.nodes]
    assert len({item.name for item in named}) == len(named)


TRAINING = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = torch.nn.BatchNorm1d(16)
    def forward(self, x):
        return self.bn(x)
def get_inputs():
    return [torch.rand(64, 16)]
def get_init_inputs():
    return []
"""


def test_mode_is_kept_and_changed_state_is_flagged(executor: LocalExecutor) -> None:
    facts = executor.describe(TRAINING)
    assert facts.training
    assert [f["rule"] for f in facts.flags] == ["mutates-state"]
    assert any("batch_norm" in node.op for node in facts.nodes)
    assert len(facts.output_refs) == 1


def test_a_shape_that_depends_on_values_is_said_not_hidden(executor: LocalExecutor) -> None:
    picking = TRAINING.replace("return self.bn(x)", "return x[x > 0].sum()")
    facts = executor.describe(picking)
    assert facts.trace_error
    assert facts.nodes == []
    assert facts.to_json()


def test_data_dependent_control_flow_is_said_not_hidden(executor: LocalExecutor) -> None:
    branching = TRAINING.replace("return self.bn(x)", "return x if x.sum() > 1000 else x + 1")
    facts = executor.describe(branching)
    assert facts.trace_error
    assert facts.nodes == []
    assert facts.outputs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("self.bn(x)", "self.bn(x[0])"), "ValueError"),
        (("torch.rand(64, 16)", "torch.rand(0, 16)"), "only empty"),
    ],
)
def test_invalid_problem(executor: LocalExecutor, change: tuple[str, str], words: str) -> None:
    with pytest.raises(ProblemError, match=words) as caught:
        executor.describe(TRAINING.replace(*change))
    assert caught.value.hint


def test_problem_without_model_needs_no_process(executor: LocalExecutor) -> None:
    with pytest.raises(ProblemError, match="defines no Model"):
        executor.describe("def get_inputs(): ...\ndef get_init_inputs(): ...")


@pytest.mark.parametrize("source", [pytest.param(PROBLEM, marks=pytest.mark.full), TRAINING])
def test_compiler_source_is_a_correct_candidate(
    executor: LocalExecutor, evaluate: Callable[..., Evaluation], source: str
) -> None:
    candidate = executor.compiler_source(source)
    assert "COMPILER_MADE" in candidate
    result = evaluate(source, candidate)
    assert result.status == "correct", result.reason
    assert "weights-not-loaded" not in [f["rule"] for f in result.flags]
