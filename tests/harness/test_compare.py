"""Tolerances: what an honest kernel may differ by, and what no kernel may."""

from __future__ import annotations

import pytest
import torch

from harness.worker.compare import CHUNK, Tolerance, compare, parse_tolerance

PLAIN = Tolerance({})


def test_equal_tensors_have_no_error() -> None:
    x = torch.randn(3, 5)
    result = compare(x, x.clone(), PLAIN, x.double())
    assert result.problem is None
    assert (result.max_abs_err, result.rel_frobenius, result.err_vs_fp64) == (0.0, 0.0, 0.0)


def test_one_wrong_element_in_the_last_piece_is_found() -> None:
    x = torch.randn(CHUNK + 7)
    y = x.clone()
    y[-1] += 1
    result = compare(y, x, PLAIN)
    assert result.problem is not None
    assert "1 of" in result.problem


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_special_values_must_match_position_by_position(value: float) -> None:
    x = torch.randn(100)
    y = x.clone()
    y[3] = value
    for mine, theirs in ((y, x), (x, y)):
        assert compare(mine, theirs, PLAIN).problem is not None
    assert compare(y, y.clone(), PLAIN).problem is None
    moved = x.clone()
    moved[4] = value
    assert compare(moved, y, PLAIN).problem is not None


def test_low_precision_hides_from_no_absolute_tolerance() -> None:
    a, b = torch.randn(64, 256), torch.randn(256, 64)
    exact = (a @ b) * 1e-4  # all elements far below the absolute tolerance
    low = (a.bfloat16() @ b.bfloat16()).float() * 1e-4
    result = compare(low, exact, PLAIN)
    assert result.problem is not None
    assert "less precise" in result.problem


def test_another_order_of_summation_is_accepted_where_eager_is_as_far_off() -> None:
    x = torch.randn(4, 100_000) * 1e4
    exact = x.double().sum(1)
    assert compare(x.flip(1).sum(1), x.sum(1), PLAIN, exact).problem is None
    assert compare(x.sum(1) * 1.001, x.sum(1), PLAIN, exact).problem is not None


def test_bfloat16_outputs() -> None:
    x = torch.randn(1000)
    assert compare((x * 1.001).bfloat16(), x.bfloat16(), PLAIN).problem is None
    assert compare((x * 1.05).bfloat16(), x.bfloat16(), PLAIN).problem is not None


def test_integers_are_exact() -> None:
    x = torch.arange(10)
    assert compare(x, x.clone(), PLAIN).problem is None
    assert compare(x + 1, x, PLAIN).max_abs_err == 1


def test_tolerance_of_a_problem() -> None:
    assert parse_tolerance({"float32": 1e-2}).elementwise("float32") == 1e-2
    assert parse_tolerance({"float32": 1e-2}).elementwise("float64") == 1e-9
    assert parse_tolerance(1e-6).whole("float32") == pytest.approx(5e-7)
    for wrong in ("loose", {"float32": -1}, {"int64": 1}, {"float32": float("inf")}):
        with pytest.raises(ValueError, match="tolerance"):
            parse_tolerance(wrong)


def test_an_output_that_cancels_to_nearly_nothing_is_not_called_imprecise() -> None:
    """The mean of noise summed in another order: 2e-4 of itself off, one float32 rounding of its terms."""
    reference = torch.tensor(1.0e-3)
    other = reference + 2e-7
    assert compare(other, reference, PLAIN).problem is None
    assert compare(other.expand(100), reference.expand(100), PLAIN).problem is not None
    assert compare(other, reference, PLAIN, torch.tensor(1.0e-3, dtype=torch.float64)).problem is not None
