"""Tolerances: what an honest kernel may differ by, and what no kernel may."""

from __future__ import annotations

import pytest
import torch

from harness.worker.compare import CHUNKS, Tolerance, compare, parse_tolerance

PLAIN = Tolerance({})


def test_equal_tensors_have_no_error() -> None:
    x = torch.randn(3, 5)
    result = compare(x, x.clone(), PLAIN, x.double())
    assert result.problem is None
    assert (result.max_abs_err, result.rel_frobenius, result.err_vs_fp64) == (0.0, 0.0, 0.0)


def test_one_wrong_element_in_the_last_piece_is_found() -> None:
    x = torch.randn(CHUNKS["cpu"] + 7)
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


@pytest.mark.parametrize(
    ("lower", "named"),
    [(torch.bfloat16, "bfloat16"), (torch.float16, "TF32 or float16"), (None, "TF32 or float16")],
)
def test_a_precision_downgrade_is_named(lower: torch.dtype | None, named: str) -> None:
    a, b = torch.randn(96, 512), torch.randn(512, 96)

    def rounded(t: torch.Tensor) -> torch.Tensor:
        return tf32(t) if lower is None else t.to(lower).float()

    result = compare(rounded(a) @ rounded(b), a @ b, PLAIN, a.double() @ b.double())
    assert result.problem is not None
    assert result.rule == "precision-downgrade"
    assert f"less precise than float32: looks like {named} inside" in result.problem
    if lower is not torch.bfloat16:
        assert compare(rounded(a) @ rounded(b), a @ b, TF32, a.double() @ b.double()).problem is None


def tf32(x: torch.Tensor) -> torch.Tensor:
    """As hardware does that cuts off what does not fit."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


TF32 = parse_tolerance({}, tf32=True)


def test_bfloat16_is_no_tf32() -> None:
    a, b = torch.randn(96, 512), torch.randn(512, 96)
    low = (a.bfloat16() @ b.bfloat16()).float()
    result = compare(low, a @ b, TF32, a.double() @ b.double())
    assert result.problem is not None
    assert result.rule == "precision-downgrade"
    assert parse_tolerance({"float32": 1e-3}, tf32=True).whole("float32") == pytest.approx(5e-4)
    assert TF32.whole("float64") == PLAIN.whole("float64")


def test_a_few_wrong_elements_are_no_matter_of_precision() -> None:
    x = torch.randn(10_000)
    y = x.clone()
    y[:100] *= 1.01
    result = compare(y, x, PLAIN)
    assert result.problem is not None
    assert result.rule == ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1, 8, 4096])
def test_ill_conditioned_sums_in_any_order(dtype: torch.dtype, size: int) -> None:
    """Sums that cancel to a thousandth of their terms: honest orders differ by more than the plain limits."""
    torch.manual_seed(size)
    x = torch.randn(size, 20_000)
    x = torch.cat([x, -x + 1e-5 * torch.randn_like(x)], 1).to(dtype)
    exact = x.double().sum(1)
    eager = x.sum(1)
    orders = [
        x.flip(1).sum(1),
        x.view(size, 200, 200).sum(1).sum(1),
        x.float().cumsum(1)[:, -1].to(dtype),
        x.float().view(size, -1, 64).sum(2).sum(1).to(dtype),
        exact.to(dtype),
    ]
    for i, other in enumerate(orders):
        if dtype == torch.float32 or i >= 2:
            result = compare(other, eager, PLAIN, exact)
            assert result.problem is None, (i, result.problem)
    assert compare(eager + 0.1 * float(x.double().square().sum(1).mean().sqrt()), eager, PLAIN, exact).problem
