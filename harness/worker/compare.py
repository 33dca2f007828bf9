"""Is a candidate's output the reference's? Element by element, as a whole, and against double precision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

# Element-wise absolute and relative tolerance.
ELEMENTWISE = {
    "float64": 1e-9,
    "complex128": 1e-9,
    "float32": 1e-4,
    "complex64": 1e-4,
    "float16": 1e-2,
    "bfloat16": 1e-2,
    "float8_e4m3fn": 0.13,
    "float8_e5m2": 0.25,
}
# Relative Frobenius error. Honest float32 kernels stay below 6e-7 and TF32 or bfloat16 products above 2e-4,
# so 5e-5 leaves a wide gap on both sides; honest bfloat16 outputs sit at 1.8e-3 to 2.9e-3, float16 ones at
# 3e-4.
WHOLE = {
    "float64": 1e-9,
    "complex128": 1e-9,
    "float32": 5e-5,
    "complex64": 5e-5,
    "float16": 2e-3,
    "bfloat16": 1.2e-2,
    "float8_e4m3fn": 0.13,
    "float8_e5m2": 0.25,
}
# A candidate may be this many times as far from the double-precision result as eager itself is.
EAGER_ERROR_MULTIPLE = 4.0


@dataclass
class Comparison:
    """Worst figures over the outputs of one call; `problem` is one line, or None when they agree."""

    max_abs_err: float = 0.0
    max_rel_err: float = 0.0
    rel_frobenius: float = 0.0
    limit_share: float = 0.0  # worst error as a share of what the tolerances allow
    err_vs_fp64: float | None = None
    eager_err_vs_fp64: float | None = None
    problem: str | None = None

    def absorb(self, other: Comparison) -> None:
        """Keeps the worse of both figures and the first problem."""
        self.max_abs_err = max(self.max_abs_err, other.max_abs_err)
        self.max_rel_err = max(self.max_rel_err, other.max_rel_err)
        self.rel_frobenius = max(self.rel_frobenius, other.rel_frobenius)
        self.limit_share = max(self.limit_share, other.limit_share)
        self.err_vs_fp64 = _worse(self.err_vs_fp64, other.err_vs_fp64)
        self.eager_err_vs_fp64 = _worse(self.eager_err_vs_fp64, other.eager_err_vs_fp64)
        self.problem = self.problem or other.problem


@dataclass(frozen=True)
class Tolerance:
    """Limits of one problem: `overrides` maps a dtype name to its own element-wise tolerance."""

    overrides: dict[str, float]
    factor: float = 1.0

    def elementwise(self, dtype: str) -> float:
        return self.factor * self.overrides.get(dtype, ELEMENTWISE.get(dtype, 0.0))

    def whole(self, dtype: str) -> float:
        """Of the whole output; an override moves it by the factor by which it moves the element-wise
        limit.
        """
        own, usual = self.overrides.get(dtype), ELEMENTWISE.get(dtype, 0.0)
        moved = 1.0 if own is None or usual == 0 else own / usual
        return self.factor * moved * WHOLE.get(dtype, 0.0)

    def widened(self, factor: float) -> Tolerance:
        return Tolerance(self.overrides, self.factor * factor)


def parse_tolerance(value: Any) -> Tolerance:
    """From META: a number for all floating dtypes, or {dtype name: number}; raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = dict.fromkeys(ELEMENTWISE, value)
    if not isinstance(value, dict):
        raise ValueError("META['tolerance'] must be a number or a dictionary of dtype names")
    overrides = {}
    for dtype, limit in value.items():
        name = str(dtype).removeprefix("torch.")
        if name not in ELEMENTWISE:
            raise ValueError(f"META['tolerance'] names an unknown dtype: {name}")
        if not isinstance(limit, int | float) or not 0 <= limit < math.inf:
            raise ValueError(f"META['tolerance'][{name!r}] is no tolerance")
        overrides[name] = float(limit)
    return Tolerance(overrides)


def compare(
    candidate: torch.Tensor,
    reference: torch.Tensor,
    tolerance: Tolerance,
    double: torch.Tensor | None = None,
    label: str = "output",
) -> Comparison:
    """Compares two tensors of one shape and dtype; `double` is the reference computed in double precision."""
    dtype = str(reference.dtype).removeprefix("torch.")
    if reference.is_complex():
        candidate, reference = torch.view_as_real(candidate), torch.view_as_real(reference)
        double = None
    if not reference.is_floating_point():
        wrong = candidate != reference
        count = int(wrong.sum())
        worst = float((candidate.double() - reference.double()).abs().max()) if count else 0.0
        problem = f"{label}: {count} of {wrong.numel()} integers differ" if count else None
        return Comparison(max_abs_err=worst, problem=problem)
    if reference.numel() == 0:
        return Comparison()
    if reference.dtype not in (torch.float32, torch.float64):
        candidate, reference = candidate.float(), reference.float()
    problem = _special_values(candidate, reference, label)
    if problem:
        return Comparison(max_abs_err=math.inf, max_rel_err=math.inf, problem=problem)
    finite = torch.isfinite(reference)
    if not bool(finite.all()):
        candidate, reference = candidate[finite], reference[finite]
        double = None if double is None else double[finite]
        if reference.numel() == 0:
            return Comparison()
    error = (candidate - reference).abs_()
    size = reference.abs()
    limit = tolerance.elementwise(dtype)
    norm = float(torch.linalg.vector_norm(reference, dtype=torch.float64))
    # Rounding errors grow with what was summed: where outputs are large, so is the absolute tolerance.
    typical = max(1.0, norm / math.sqrt(reference.numel()))
    outside = int((error - size * limit > typical * limit).sum())
    whole = float(torch.linalg.vector_norm(error, dtype=torch.float64)) / norm if norm > 0 else 0.0
    result = Comparison(
        max_abs_err=float(error.max()),
        max_rel_err=float((error / size.clamp(min=max(limit, 1e-12))).max()),
        rel_frobenius=whole,
        limit_share=max(
            float((error / (size + typical)).max()) / limit if limit else 0.0,
            whole / tolerance.whole(dtype) if tolerance.whole(dtype) else 0.0,
        ),
    )
    exact = False
    if double is not None and bool(torch.isfinite(double).all()):
        result.err_vs_fp64 = _relative(candidate, double)
        result.eager_err_vs_fp64 = _relative(reference, double)
        worst, eager_worst = (float((v.double() - double).abs().max()) for v in (candidate, reference))
        exact = (
            result.err_vs_fp64 <= EAGER_ERROR_MULTIPLE * result.eager_err_vs_fp64
            and worst <= EAGER_ERROR_MULTIPLE * eager_worst
        )
    if outside and not exact:
        result.problem = (
            f"{label}: {outside} of {reference.numel()} elements differ by more than {limit:g} "
            f"(worst {result.max_abs_err:.3g}, typical size {typical:.3g})"
        )
    elif whole > tolerance.whole(dtype) and not exact:
        result.problem = (
            f"{label}: relative error {whole:.2g} over the whole exceeds {tolerance.whole(dtype):g}: "
            f"less precise than {dtype}"
        )
    return result


def _special_values(candidate: torch.Tensor, reference: torch.Tensor, label: str) -> str | None:
    for name, where_c, where_r in (
        ("NaN", torch.isnan(candidate), torch.isnan(reference)),
        ("+Inf", candidate == math.inf, reference == math.inf),
        ("-Inf", candidate == -math.inf, reference == -math.inf),
    ):
        wrong = int((where_c != where_r).sum())
        if wrong:
            extra = int((where_c & ~where_r).sum())
            what = f"{extra} unexpected {name}" if extra else f"{wrong} {name} missing"
            return f"{label}: {what} among {reference.numel()} elements"
    return None


def _relative(value: torch.Tensor, exact: torch.Tensor) -> float:
    norm = float(torch.linalg.vector_norm(exact))
    difference = float(torch.linalg.vector_norm(value.double() - exact))
    return difference / norm if norm > 0 else difference


def _worse(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else max(a, b)
