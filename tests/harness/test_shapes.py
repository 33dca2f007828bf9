"""Inputs besides those that a problem draws: sizes of META, derived sizes, other memory layouts."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from harness import Evaluation
from harness.worker.meta import Meta, parse_meta
from harness.worker.stats import ratio_interval, weighted_geometric_mean

Evaluate = Callable[..., Evaluation]

PROBLEM = """
import torch
rows, cols = 32, 64
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(width))
    def forward(self, x):
        return x.mean(0) * self.scale + x.mean()
def get_inputs():
    return [torch.randn(rows, cols) + 1]
def get_init_inputs():
    return [cols]
"""
OWN = PROBLEM.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
FORWARD = "x.mean(0) * self.scale + x.mean()"
SHAPES = """
META = {"shapes": [
    {"name": "wide", "weight": 3.0, "globals": {"cols": 96}},
    {"name": "tall", "globals": {"rows": 48, "cols": 16}},
]}
"""


def forward(text: str) -> str:
    return OWN.replace(FORWARD, text)


def rules(result: Evaluation) -> dict[str, str]:
    return {flag["rule"]: flag["severity"] for flag in result.flags}


def test_shapes_of_meta_are_judged_and_timed(evaluate: Evaluate) -> None:
    result = evaluate(PROBLEM + SHAPES, OWN, timing_budget_s=0.6)
    assert result.status == "correct", result.reason
    assert [(s["name"], s["weight"]) for s in result.per_shape] == [("main", 1), ("wide", 3), ("tall", 1)]
    logs = [math.log(s["speedup"]) for s in result.per_shape]
    assert result.speedup == pytest.approx(math.exp((logs[0] + 3 * logs[1] + logs[2]) / 5))
    assert result.speedup_ci is not None
    assert result.speedup_ci[0] <= result.speedup <= result.speedup_ci[1]
    assert result.speedups["eager"]["speedup"] == result.speedup
    for figures in result.per_shape:
        assert figures["candidate_ms"]["n"] > 5
        assert figures["baselines"]["eager_ms"] > 0
    assert result.candidate_ms == result.per_shape[0]["candidate_ms"]
    assert result.correctness is not None
    assert result.correctness["rounds"] >= 15


def test_a_shape_that_comes_out_wrong_is_named(evaluate: Evaluate) -> None:
    result = evaluate(PROBLEM + SHAPES, forward("x.sum(0) / 32 * self.scale + x.mean()"))
    assert result.status == "incorrect"
    assert result.reason.endswith("(shape tall)")
    assert result.per_shape == []
    refuses = forward(FORWARD).replace("return x", "assert x.shape[1] != 96, 'too wide'; return x")
    result = evaluate(PROBLEM + SHAPES, refuses)
    assert result.status == "runtime_error"  # sizes that are named have to be taken
    assert "too wide" in result.reason
    broken = (PROBLEM + SHAPES).replace("rows, cols) + 1]", "rows, cols) + 1] if cols > 16 else 1 / 0")
    result = evaluate(broken, OWN)
    assert (result.status, "ZeroDivisionError" in result.reason) == ("invalid_problem", True)


def test_the_files_own_sizes_may_be_named_and_weighted() -> None:
    meta = parse_meta({"n": 3, "META": {"shapes": [{"globals": {"n": 4}}, {"name": "own", "weight": 2}]}})
    assert [(s.name, s.weight) for s in meta.shapes] == [("own", 2.0), ("n=4", 1.0)]
    assert parse_meta({}) == Meta()


def test_interval_of_a_weighted_mean() -> None:
    """Independent errors average out: the interval of the mean of equals is narrower than each of theirs."""
    rng = random.Random(5)

    def blocks(center: float) -> list[list[float]]:
        return [[center + rng.gauss(0, 0.1) for _ in range(5)] for _ in range(8)]

    pairs = [(blocks(2), blocks(1)) for _ in range(4)]
    mean, low, high = weighted_geometric_mean(pairs, [1.0] * 4)
    widths = [top - bottom for _, bottom, top in (ratio_interval(*pair) for pair in pairs)]
    assert low < mean < high
    assert low < 2 < high
    assert high - low < 0.75 * min(widths)
    one = ratio_interval(*pairs[0])
    assert weighted_geometric_mean(pairs, [1.0, 1e-9, 1e-9, 1e-9])[0] == pytest.approx(one[0], rel=1e-6)


# -- derived sizes ---------------------------------------------------------------------------------------

ROWS = (
    PROBLEM.replace("[cols]", "[]")
    .replace("(self, width)", "(self)")
    .replace("torch.ones(width)", "torch.ones(())")
)
ROWS_OWN = ROWS.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")


def of_rows(text: str) -> str:
    assert FORWARD in ROWS_OWN
    return ROWS_OWN.replace(FORWARD, text)


@pytest.mark.parametrize(
    "text",
    [
        "x.sum(0) / 32 * self.scale + x.mean()",
        "x.mean(0) * self.scale + x.sum() / 2048",
        "(lambda y: y)(x.sum(0) * 0.03125) * self.scale + x.mean()",
        "x[:32].sum(0) / 32 * self.scale + x.mean()",
    ],
    ids=["divisor", "count", "renamed", "bound"],
)
def test_sizes_baked_in_without_asking(evaluate: Evaluate, text: str) -> None:
    result = evaluate(ROWS, of_rows(text))
    assert result.status == "rejected", result.reason
    assert "hard-coded for the benchmark's shape" in result.reason
    assert rules(result)["shape-hardcoded"] == "reject"


def test_a_kernel_may_refuse_other_shapes(evaluate: Evaluate) -> None:
    result = evaluate(
        ROWS,
        of_rows("self.run(x)")
        + """
    def run(self, x):
        if tuple(x.shape) != (32, 64):
            raise ValueError(f"made for (32, 64), got {tuple(x.shape)}")
        return x.sum(0) / 32 * self.scale + x.mean()
""",
    )
    assert result.status == "correct", result.reason
    assert rules(result)["shape-specialised"] == "info"


def test_a_kernel_that_dies_of_other_shapes(evaluate: Evaluate) -> None:
    result = evaluate(
        ROWS,
        of_rows("self.run(x)")
        + """
    def run(self, x):
        import os
        x.shape[0] == 32 or os.abort()
        return x.mean(0) * self.scale + x.mean()
""",
    )
    assert result.status == "correct", result.reason
    assert rules(result)["shape-specialised"] == "warning"
    assert "SIGABRT" in next(f["detail"] for f in result.flags if f["rule"] == "shape-specialised")


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        # Blocks of 16 rows without a mask: right for all sizes that such blocks divide.
        ("x[: len(x) // 16 * 16].sum(0) / len(x) * self.scale + x.mean()", "warning"),
        # One block of 32 rows: wrong for half of them only.
        ("(x.sum(0) if len(x) >= 32 else 0 * x[0]) / len(x) * self.scale + x.mean()", "warning"),
        ("x[:32].sum(0) / len(x) * self.scale + x.mean()", None),
    ],
)
def test_relying_on_some_sizes_is_a_warning(evaluate: Evaluate, text: str, severity: str | None) -> None:
    result = evaluate(ROWS, of_rows(text))
    assert result.status == "correct", result.reason
    assert rules(result).get("shape-specialised") == severity


def test_a_size_that_the_constructor_is_told_may_be_used(evaluate: Evaluate) -> None:
    told = ROWS.replace("return []", "return [rows]").replace("(self)", "(self, n)", 1)
    own = told.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    own = own.replace("super().__init__()", "super().__init__(); self.n = n")
    result = evaluate(told, own.replace(FORWARD, "x.sum(0) / self.n * self.scale + x.mean()"))
    assert result.status == "correct", result.reason
    assert rules(result)["shape-specialised"] == "warning"


def test_indices_stay_inside_what_they_point_into(evaluate: Evaluate) -> None:
    source = """
import torch
class Model(torch.nn.Module):
    def forward(self, table, index):
        return table[index]
def get_inputs():
    return [torch.randn(40, 8), torch.randint(0, 40, (12,))]
def get_init_inputs():
    return []
"""
    own = source.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    result = evaluate(source, own)
    assert result.status == "correct", result.reason
    hard = own.replace(
        "table[index]", "(table[index], assert_ := None)[0] if len(index) == 12 else table[:len(index)]"
    )
    assert evaluate(source, hard).status == "rejected"


# -- other layouts ---------------------------------------------------------------------------------------


def test_strides_that_are_ignored(evaluate: Evaluate) -> None:
    raw = "torch.as_strided(x, x.shape, (x.shape[1], 1), x.storage_offset())"
    result = evaluate(PROBLEM, forward(f"{raw}.mean(0) * self.scale + {raw}.mean()"))
    assert result.status == "incorrect", result.reason
    assert "memory layout" in result.reason


@pytest.mark.parametrize("guard", ["x = x.contiguous()", "assert x.is_contiguous(), 'contiguous only'"])
def test_layouts_are_copied_or_refused(evaluate: Evaluate, guard: str) -> None:
    result = evaluate(
        PROBLEM,
        forward("self.run(x)")
        + f"""
    def run(self, x):
        {guard}
        x = torch.as_strided(x, x.shape, (x.shape[1], 1), x.storage_offset())
        return x.mean(0) * self.scale + x.mean()
""",
    )
    assert result.status == "correct", result.reason
    assert ("layout-specialised" in rules(result)) == ("assert" in guard)


def test_a_reference_that_wants_contiguous_inputs(evaluate: Evaluate) -> None:
    source = PROBLEM.replace("return x.mean(0)", "assert x.is_contiguous(); return x.mean(0)")
    raw = "torch.as_strided(x, x.shape, (x.shape[1], 1))"
    result = evaluate(source, forward(f"{raw}.mean(0) * self.scale + {raw}.mean()"))
    assert result.status == "correct", result.reason


# -- state -----------------------------------------------------------------------------------------------

COUNTING = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        {step}
        return x + self.n
def get_inputs():
    return [torch.randn(64, 8)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("init", "step"),
    [
        ("self.n = 0", "self.n += 1"),
        ("self.register_buffer('n', torch.zeros(()))", "self.n += 1"),
        ("self.n = 0.0", "self.n = 0.5 * self.n + float(x.mean())"),
    ],
)
def test_stateful_reference(evaluate: Evaluate, init: str, step: str) -> None:
    source = COUNTING.format(init=init, step=step)
    own = source.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    result = evaluate(source, own, timing_budget_s=0.3)
    assert result.status == "correct", result.reason
    assert rules(result)["stateful-output"] == "warning"
    assert result.correctness is not None
    assert result.correctness["timed_checks"] > 5
    forgets = own.replace(step, "pass" if "x" not in step else "self.n = 0.5 * float(x.mean())")
    result = evaluate(source, forgets)
    assert result.status == "incorrect", result.reason


def test_state_that_grows_is_no_problem_to_be_judged(evaluate: Evaluate) -> None:
    source = COUNTING.format(
        init="self.n, self.seen = 0, []", step="self.seen.append(x); x = torch.cat(self.seen)"
    )
    result = evaluate(source, source.replace("class Model(", "class ModelNew("))
    assert result.status == "invalid_problem"
    assert "a later call" in result.reason
