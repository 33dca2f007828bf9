"""Problems from PyTorch's operator database."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness import LocalExecutor, opinfo
from harness.errors import ProblemError
from harness.opinfo import calls, generate
from harness.opinfo.sizes import scalings
from harness.problem import load_problem


def operator(name: str, op: Any, *samples: Any) -> Any:
    """An entry like the database's; each sample is (input, args, kwargs)."""
    listed = [SimpleNamespace(input=i, args=tuple(a), kwargs=k) for i, a, k in samples]
    return SimpleNamespace(
        name=name,
        op=op,
        variant_test_name="",
        supported_dtypes=lambda _: {torch.float32},
        sample_inputs=lambda *_, **__: listed,
    )


def run(text: str) -> tuple[list[Any], Any]:
    space: dict[str, Any] = {}
    exec(text, space)
    torch.manual_seed(0)
    inputs = space["get_inputs"]()
    return inputs, space["Model"]()(*inputs)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    entries: list[Any] = []
    monkeypatch.setattr(generate, "database", lambda: entries)
    return entries


def test_largest_sample_scaled(database: list[Any]) -> None:
    samples = [(torch.randn(2), [], {"dim": 0}), (torch.rand(5, 4), [], {"dim": 1})]
    database.append(operator("softmax", torch.softmax, *samples))
    text = generate.source("softmax", None, None, 2000)
    (x,), result = run(text)
    assert x.shape == (50, 40)
    assert torch.equal(result, torch.softmax(x, dim=1))
    assert "testing" not in text
    (x,), _ = run(generate.source("softmax", None, 0, 0))
    assert x.shape == (2,)
    assert generate.source("softmax", None, None, 2000) == text


def test_wrapped_operators_are_written_as_torch_names_them(database: list[Any]) -> None:
    database.append(operator("expand", lambda t, n: t.expand(n), (torch.randn(1, 4), [(3, 4)], {})))
    database.append(operator("T", lambda t: t.T, (torch.randn(3, 4), [], {})))
    database.append(
        operator(
            "where",
            lambda t, c, o: torch.where(c, t, o),
            (torch.randn(40), [torch.rand(40) < 0.5, torch.randn(40)], {}),
        )
    )
    database.append(operator("two", lambda t: t.exp().log(), (torch.randn(3), [], {})))
    assert "input.expand((3, 4))" in generate.source("expand", None, None, 0)
    assert "return input.T\n" in generate.source("T", None, None, 0)
    inputs, _ = run(generate.source("where", None, None, 0))
    assert [t.dtype for t in inputs] == [torch.bool, torch.float32, torch.float32]
    with pytest.raises(ProblemError, match="composes it of several calls"):
        generate.source("two", None, None, 0)


def test_what_scaling_breaks_is_scaled_otherwise_or_not(database: list[Any]) -> None:
    """A view of a fixed shape allows no other size."""
    database.append(operator("reshape", torch.reshape, (torch.randn(4, 6), [(2, 12)], {})))
    database.append(operator("layer_norm", torch.layer_norm, (torch.randn(4, 6), [(6,)], {})))
    (x,), _ = run(generate.source("reshape", None, None, 1 << 16))
    assert x.shape == (4, 6)
    (x,), _ = run(generate.source("layer_norm", None, None, 1 << 16))
    assert x.shape[1] == 6
    assert x.shape[0] > 1000


def test_errors_name_what_is_wrong(database: list[Any]) -> None:
    database.append(operator("nn.functional.gelu", torch.nn.functional.gelu, (torch.randn(40), [], {})))
    database.append(operator("ones", torch.ones, (3, [], {})))
    assert "gelu" in generate.source("gelu", None, None, 0)
    with pytest.raises(ProblemError, match="no operator gel") as caught:
        generate.source("gel", None, None, 0)
    assert caught.value.hint == "did you mean gelu?"
    with pytest.raises(ProblemError, match="has 1 samples"):
        generate.source("gelu", None, 7, 0)
    with pytest.raises(ProblemError, match="no variant odd"):
        generate.source("gelu", "odd", None, 0)
    with pytest.raises(ProblemError, match="aten:ones cannot be written as a problem"):
        generate.source("ones", None, None, 0)
    with pytest.raises(ProblemError, match="is no operator of OpInfo"):
        opinfo.problem_source("aten:")


def test_equal_sizes_stay_equal_and_one_stays_one() -> None:
    for _, shapes in scalings([(5, 10), (10, 5), (1, 5)], 100_000):
        assert shapes[0][1] == shapes[1][0]
        assert shapes[2][0] == 1
        assert max(math.prod(s) for s in shapes) <= 100_000


def test_sparse_samples_are_refused() -> None:
    sample = SimpleNamespace(input=torch.eye(3).to_sparse(), args=(), kwargs={})
    with pytest.raises(calls.Unfit, match="sparse"):
        calls.call_of(operator("neg", torch.neg), sample)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(opinfo, "_run", lambda _: opinfo.checked({"missing": "expecttest"}))
    with pytest.raises(opinfo.DatabaseUnavailable, match="needs expecttest") as caught:
        opinfo.problem_source("aten:softmax")
    assert caught.value.hint == "pip install expecttest"


def test_the_real_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: LocalExecutor) -> None:
    problem = load_problem("aten:log_softmax@5000", tmp_path)
    assert problem.name == "aten_log_softmax_5000"
    assert "torch.log_softmax(" in problem.source
    monkeypatch.setattr(opinfo, "_run", lambda _: pytest.fail("kept answers are not asked for again"))
    assert load_problem("aten:log_softmax@5000", tmp_path) == problem
    facts = executor.describe(problem.source, problem.name)
    assert any("log_softmax" in node.op for node in facts.nodes)
