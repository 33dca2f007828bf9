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
# The same for float32 where TF32 is allowed. TF32 keeps 10 bits of the significand's fraction (NVIDIA A100
# white paper); hardware may cut the rest off, an error below 2^-10 for each operand, so that of a product is
# below 2^-9. A sum of products stays below that as long as it does not cancel; where it does, eager's own
# error in TF32 is what counts. Element by element it is float16's limit, whose significand is as long.
ELEMENTWISE_TF32, WHOLE_TF32 = 1e-2, 2.0**-9
# What lower precision inside looks like: nearly all elements are a little off. bfloat16 products measure
# 1.8e-3 to 2.9e-3 over the whole, TF32 and float16 ones (unit roundoff 2^-11) 2e-4 to 7e-4.
BFLOAT16_FROM, NOISE_TO = 1e-3, 8e-3
NOISY, NOISY_SHARE = 2.0**-16, 0.7
# An output of fewer elements may cancel to nearly nothing (the mean of noise). Its relative error then tells
# the order of summation, not the precision, and only a double-precision result can tell the two apart.
FEW = 64
# A candidate may be this many times as far from the double-precision result as eager itself is.
EAGER_ERROR_MULTIPLE = 4.0
# Elements compared at once: what fits into a CPU's cache; a device wants more.
_TF32 = ("float32", "complex64")
CHUNKS = {"cpu": 1 << 17, "cuda": 1 << 26}


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
    rule: str = ""  # the name of the problem, where it has one

    def absorb(self, other: Comparison) -> None:
        """Keeps the worse of both figures and the first problem."""
        self.max_abs_err = max(self.max_abs_err, other.max_abs_err)
        self.max_rel_err = max(self.max_rel_err, other.max_rel_err)
        self.rel_frobenius = max(self.rel_frobenius, other.rel_frobenius)
        self.limit_share = max(self.limit_share, other.limit_share)
        self.err_vs_fp64 = _worse(self.err_vs_fp64, other.err_vs_fp64)
        self.eager_err_vs_fp64 = _worse(self.eager_err_vs_fp64, other.eager_err_vs_fp64)
        if not self.problem:
            self.problem, self.rule = other.problem, other.rule


@dataclass(frozen=True)
class Tolerance:
    """Limits of one problem: `overrides` maps a dtype name to its own element-wise tolerance."""

    overrides: dict[str, float]
    factor: float = 1.0
    tf32: bool = False

    def elementwise(self, dtype: str) -> float:
        usual = ELEMENTWISE_TF32 if self.tf32 and dtype in _TF32 else ELEMENTWISE.get(dtype, 0.0)
        return self.factor * self.overrides.get(dtype, usual)

    def whole(self, dtype: str) -> float:
        """Of the whole output; an override moves it by the factor by which it moves the element-wise
        limit.
        """
        own, usual = self.overrides.get(dtype), ELEMENTWISE.get(dtype, 0.0)
        if own is None and self.tf32 and dtype in _TF32:
            return self.factor * WHOLE_TF32
        moved = 1.0 if own is None or usual == 0 else own / usual
        return self.factor * moved * WHOLE.get(dtype, 0.0)

    def widened(self, factor: float) -> Tolerance:
        return Tolerance(self.overrides, self.factor * factor, self.tf32)


def parse_tolerance(value: Any, *, tf32: bool = False) -> Tolerance:
    """From META: a number for all floating dtypes, or {dtype name: number}; raises ValueError. `tf32`:
    products of float32 may be computed in TF32.
    """
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
    return Tolerance(overrides, tf32=tf32)


def compare(
    candidate: torch.Tensor,
    reference: torch.Tensor,
    tolerance: Tolerance,
    double: torch.Tensor | None = None,
    label: str = "output",
) -> Comparison:
    """Compares two tensors of one shape and dtype; `double` is the reference computed in double precision."""
    dtype = str(reference.dtype).removeprefix("torch.")
    if reference.numel() == 0:
        return Comparison()
    if reference.is_complex():
        candidate, reference, double = torch.view_as_real(candidate), torch.view_as_real(reference), None
    if not reference.is_floating_point():
        return _compare_integers(candidate, reference, label)
    sums = _Sums()
    mine, theirs = candidate.reshape(-1), reference.reshape(-1)
    exact = None if double is None else double.reshape(-1)
    limit = tolerance.elementwise(dtype)
    # Rounding errors grow with what was summed: where outputs are large, so is the absolute tolerance.
    typical = max(1.0, _typical_size(theirs))
    chunk = CHUNKS[theirs.device.type]
    for start in range(0, theirs.numel(), chunk):
        part = slice(start, start + chunk)
        sums.add(mine[part], theirs[part], None if exact is None else exact[part], limit, typical)
    special = sums.special()
    if special:
        problem = f"{label}: {special} among {theirs.numel()} elements"
        return Comparison(max_abs_err=math.inf, max_rel_err=math.inf, problem=problem)
    result = sums.comparison(has_double=exact is not None)
    whole = tolerance.whole(dtype)
    share = sums.worst_share / limit if limit else 0.0
    result.limit_share = max(share, result.rel_frobenius / whole if whole else 0.0)
    if sums.close_to_double():
        return result
    if sums.outside:
        result.problem = (
            f"{label}: {sums.outside} of {theirs.numel()} elements differ by more than {limit:g} "
            f"(worst {result.max_abs_err:.3g}, typical size {typical:.3g})"
        )
    elif result.rel_frobenius > whole and (exact is not None or theirs.numel() >= FEW):
        result.problem = (
            f"{label}: relative error {result.rel_frobenius:.2g} over the whole exceeds {whole:g}: "
            f"less precise than {dtype}"
        )
    lower = _lower_precision(mine, theirs, result) if result.problem and dtype == "float32" else ""
    if lower:
        result.rule = "precision-downgrade"
        less = "" if "less precise" in str(result.problem) else ": less precise than float32"
        result.problem = f"{result.problem}{less}: looks like {lower} inside"
    return result


def _lower_precision(mine: torch.Tensor, theirs: torch.Tensor, result: Comparison) -> str:
    """What explains an error that is spread over nearly all elements, or an empty string."""
    error = result.rel_frobenius if result.err_vs_fp64 is None else result.err_vs_fp64
    if theirs.numel() < FEW or not WHOLE["float32"] < error < NOISE_TO:
        return ""
    noisy = total = 0
    chunk = CHUNKS[theirs.device.type]
    for start in range(0, theirs.numel(), chunk):
        a, b = (t[start : start + chunk].double() for t in (mine, theirs))
        told = torch.isfinite(b) & (b != 0)
        total += int(told.sum())
        noisy += int(((a - b).abs() > NOISY * b.abs())[told].sum())
    if noisy < NOISY_SHARE * total:
        return ""
    return "bfloat16" if error >= BFLOAT16_FROM else "TF32 or float16"


class _Sums:
    """What is added up over pieces that fit into the cache."""

    def __init__(self) -> None:
        self.outside = 0
        self.max_abs = self.max_rel = self.worst_share = 0.0
        self.error2 = self.size2 = 0.0
        self.double_error2, self.eager_error2, self.double_size2 = 0.0, 0.0, 0.0
        self.double_worst, self.eager_worst = 0.0, 0.0
        self.double_finite = True
        self.wrong: dict[str, tuple[int, int]] = {}

    def add(
        self,
        candidate: torch.Tensor,
        reference: torch.Tensor,
        double: torch.Tensor | None,
        limit: float,
        typical: float,
    ) -> None:
        mine, theirs = candidate.double(), reference.double()
        finite = torch.isfinite(theirs)
        if not bool(finite.all()) or not bool(torch.isfinite(mine).all()):
            self._count_special(mine, theirs)
            finite &= torch.isfinite(mine)
            mine, theirs = mine[finite], theirs[finite]
            double = None if double is None else double[finite]
            if theirs.numel() == 0:
                return
        error, size = (mine - theirs).abs_(), theirs.abs()
        self.error2 += float(error.square().sum())
        self.size2 += float(size.square().sum())
        self.max_abs = max(self.max_abs, float(error.max()))
        self.max_rel = max(self.max_rel, float((error / size.clamp(min=max(limit, 1e-12))).max()))
        share = error / (size + typical)
        self.outside += int((share > limit).sum())
        self.worst_share = max(self.worst_share, float(share.max()))
        if double is not None:
            self._add_double(mine, theirs, double)

    def _add_double(self, mine: torch.Tensor, theirs: torch.Tensor, double: torch.Tensor) -> None:
        self.double_finite &= bool(torch.isfinite(double).all())
        ours, eager = (mine - double).abs_(), (theirs - double).abs_()
        self.double_error2 += float(ours.square().sum())
        self.eager_error2 += float(eager.square().sum())
        self.double_size2 += float(double.square().sum())
        self.double_worst = max(self.double_worst, float(ours.max()))
        self.eager_worst = max(self.eager_worst, float(eager.max()))

    def _count_special(self, mine: torch.Tensor, theirs: torch.Tensor) -> None:
        for name, where_mine, where_theirs in (
            ("NaN", torch.isnan(mine), torch.isnan(theirs)),
            ("+Inf", mine == math.inf, theirs == math.inf),
            ("-Inf", mine == -math.inf, theirs == -math.inf),
        ):
            extra, missing = self.wrong.get(name, (0, 0))
            extra += int((where_mine & ~where_theirs).sum())
            self.wrong[name] = (extra, missing + int((~where_mine & where_theirs).sum()))

    def special(self) -> str:
        """What is wrong with NaN and infinity, or an empty string."""
        for name, (extra, missing) in self.wrong.items():
            if extra or missing:
                return f"{extra} unexpected {name}" if extra else f"{missing} {name} missing"
        return ""

    def close_to_double(self) -> bool:
        """Whether the candidate is about as near to the double-precision result as eager is."""
        if self.double_size2 == 0 or not self.double_finite:
            return False
        return (
            math.sqrt(self.double_error2) <= EAGER_ERROR_MULTIPLE * math.sqrt(self.eager_error2)
            and self.double_worst <= EAGER_ERROR_MULTIPLE * self.eager_worst
        )

    def comparison(self, *, has_double: bool) -> Comparison:
        result = Comparison(self.max_abs, self.max_rel)
        result.rel_frobenius = math.sqrt(self.error2 / self.size2) if self.size2 > 0 else 0.0
        if has_double and self.double_finite and self.double_size2 > 0:
            result.err_vs_fp64 = math.sqrt(self.double_error2 / self.double_size2)
            result.eager_err_vs_fp64 = math.sqrt(self.eager_error2 / self.double_size2)
        return result


def _compare_integers(candidate: torch.Tensor, reference: torch.Tensor, label: str) -> Comparison:
    wrong = candidate != reference
    count = int(wrong.sum())
    if not count:
        return Comparison()
    worst = float((candidate[wrong].double() - reference[wrong].double()).abs().max())
    return Comparison(max_abs_err=worst, problem=f"{label}: {count} of {wrong.numel()} integers differ")


def _typical_size(values: torch.Tensor) -> float:
    """Root mean square of the finite elements."""
    total, count = 0.0, 0
    chunk = CHUNKS[values.device.type]
    for start in range(0, values.numel(), chunk):
        part = values[start : start + chunk]
        wide = part.double()
        finite = torch.isfinite(wide)
        count += int(finite.sum())
        total += float(torch.where(finite, wide, 0.0).square().sum())
    return math.sqrt(total / count) if count else 0.0


def _worse(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else max(a, b)
