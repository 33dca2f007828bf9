# ruff: noqa: ARG001, PLR0917 - the signatures are those of the ATen schemas
"""Lowerings of reductions, normalisations, softmax and picks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.recipe.graph import Builder, Unsupported, Value
from agent.recipe.lowering import affine, lowers, matching, normalise, scaled_sum, square


@lowers("sum.default", "sum.dim_IntList")
def _sum(b: Builder, x: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return b.reduce("sum", x, dims, keepdim)


@lowers("mean.default", "mean.dim")
def _mean(b: Builder, x: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return scaled_sum(b, x, dims, keepdim)


@lowers("amax", "max.default")
def _amax(b: Builder, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return b.reduce("max", x, dims, keepdim)


@lowers("amin", "min.default")
def _amin(b: Builder, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return b.reduce("min", x, dims, keepdim)


@lowers("prod.default", "prod.dim_int")
def _prod(b: Builder, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return b.reduce("prod", x, None if dim is None else [dim], keepdim)


@lowers("linalg_vector_norm")
def _norm(
    b: Builder, x: Value, order: float = 2, dims: Any = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    if order == 2:
        return b.map("sqrt", b.reduce("sum", square(b, x), dims, keepdim))
    if order == 1:
        return b.reduce("sum", b.map("abs", x), dims, keepdim)
    if order == float("inf"):
        return b.reduce("max", b.map("abs", x), dims, keepdim)
    raise Unsupported(f"norm of order {order}")


def _variance(
    b: Builder, x: Value, dims: Any, correction: float | None, keepdim: bool
) -> tuple[Value, Value]:
    mean, m2 = b.composite("meanvar", x, dims)
    free = x.numel // mean.numel - (1 if correction is None else correction)
    if free <= 0:
        raise Unsupported("variance with no degree of freedom")
    variance = b.map("div", m2, float(free))
    return b.squeeze(variance, x, dims, keepdim), b.squeeze(mean, x, dims, keepdim)


@lowers("var.correction")
def _var(
    b: Builder, x: Value, dims: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> Value:
    return _variance(b, x, dims, correction, keepdim)[0]


@lowers("var_mean.correction")
def _var_mean(
    b: Builder, x: Value, dims: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Value, Value]:
    return _variance(b, x, dims, correction, keepdim)


# Normalisations, softmax, losses


@lowers("_softmax")
def _softmax(b: Builder, x: Value, dim: int, half_to_float: bool) -> Value:
    top, total = b.composite("softmax", x, [dim])
    return b.map("div", b.map("exp", b.map("sub", x, top)), total)


@lowers("_log_softmax")
def _log_softmax(b: Builder, x: Value, dim: int, half_to_float: bool) -> Value:
    top, total = b.composite("softmax", x, [dim])
    return b.map("sub", b.map("sub", x, top), b.map("log", total))


@lowers("native_layer_norm")
def _layer_norm(
    b: Builder, x: Value, shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    rank = len(x.shape)
    y, mean, rstd = normalise(b, x, list(range(rank - len(shape), rank)), eps)
    return affine(b, y, weight, bias, list(shape)), mean, rstd


@lowers("native_group_norm")
def _group_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    n: int,
    c: int,
    hw: int,
    groups: int,
    eps: float,
) -> tuple[Value, Value, Value]:
    grouped = b.reshape(x, [n, groups, c // groups, hw])
    y, mean, rstd = normalise(b, grouped, [2, 3], eps)
    y = b.reshape(affine(b, y, weight, bias, [1, groups, c // groups, 1]), x.shape)
    return y, b.reshape(mean, [n, groups]), b.reshape(rstd, [n, groups])


@lowers("_native_batch_norm_legit_no_training")
def _batch_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    momentum: float,
    eps: float,
) -> list[Value | None]:
    shape = matching(list(mean.shape), len(x.shape))
    scale = b.map("rsqrt", b.map("add", var, eps))
    if weight is not None:
        scale = b.map("mul", scale, weight)
    y = b.map("mul", b.map("sub", x, b.reshape(mean, shape)), b.reshape(scale, shape))
    return [b.map("add", y, b.reshape(bias, shape)) if bias is not None else y, None, None]


@lowers("_native_batch_norm_legit.no_stats")
def _batch_norm_no_stats(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value]:
    rank = len(x.shape)
    y, mean, rstd = normalise(b, x, [d for d in range(rank) if d != 1], eps)
    shape = matching([x.shape[1]], rank)
    return [affine(b, y, weight, bias, shape), b.reshape(mean, shape[1:2]), b.reshape(rstd, shape[1:2])]


@lowers("_native_batch_norm_legit_functional")
def _batch_norm_training(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value | None]:
    """The output only: running statistics are no output of forward."""
    if not training:
        raise Unsupported("inference through the training operator")
    return [_batch_norm_no_stats(b, x, weight, bias, True, momentum, eps)[0], None, None, None, None]


@lowers("gather")
def _gather(b: Builder, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    """One element per row, at an index that the row gives: the pick of a classification loss."""
    dim %= len(x.shape)
    rows = [s for i, s in enumerate(x.shape) if i != dim]
    if (
        x.dtype != "float32"
        or index.shape[dim] != 1
        or [s for i, s in enumerate(index.shape) if i != dim] != rows
    ):
        raise Unsupported("a gather that is not one element per row")
    return b.add("pick", index.shape, x.dtype, "pick", (x, index), dim=dim)
