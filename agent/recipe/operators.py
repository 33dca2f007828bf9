# ruff: noqa: ARG001, PLR0917 - the signatures are those of the ATen schemas
"""Lowerings of ATen operators, by their schema's argument order. Each returns values shaped as the
trace says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agent.recipe.graph import Builder, Scalar, Unsupported, Value
from agent.recipe.lowering import (
    HANDLERS,
    gelu,
    lowers,
    power,
    square,
)

Operand = Value | Scalar


def _simple(fn: str) -> Callable[..., Value]:
    return lambda b, *args: b.map(fn, *args)


for _fn in [
    "neg",
    "exp",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "exp2",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "tanh",
    "sigmoid",
    "erf",
    "sin",
    "cos",
    "floor",
    "ceil",
    "round",
    "trunc",
    "sign",
    "abs",
    "isnan",
    "isinf",
    "mul",
]:
    HANDLERS[_fn] = _simple(_fn)
for _fn in ("lt", "le", "gt", "ge", "eq", "ne"):
    HANDLERS[_fn] = _simple(_fn)
HANDLERS["maximum"], HANDLERS["minimum"] = _simple("max"), _simple("min")


def _logical(fn: str) -> Callable[..., Value]:
    """True is what is not 0, in any type."""

    def truth(b: Builder, x: Operand) -> Operand:
        if not isinstance(x, Value):
            return bool(x)
        return x if x.dtype == "bool" else b.map("ne", x, 0)

    return lambda b, *args: b.map(fn, *(truth(b, a) for a in args))


def _bitwise(fn: str) -> Callable[..., Value]:
    def lower(b: Builder, *args: Operand) -> Value:
        if any((a.dtype != "bool") if isinstance(a, Value) else not isinstance(a, bool) for a in args):
            raise Unsupported(f"bitwise {fn} on numbers")
        return b.map(fn, *args)

    return lower


for _fn in ("not", "and", "or", "xor"):
    HANDLERS[f"logical_{_fn}"], HANDLERS[f"bitwise_{_fn}"] = _logical(_fn), _bitwise(_fn)
HANDLERS["gelu"] = gelu
HANDLERS["square"] = square


@lowers("add")
def _add(b: Builder, x: Operand, y: Operand, alpha: float = 1) -> Value:
    return b.map("add", x, y if alpha == 1 else _scaled(b, y, alpha))


@lowers("sub")
def _sub(b: Builder, x: Operand, y: Operand, alpha: float = 1) -> Value:
    return b.map("sub", x, y if alpha == 1 else _scaled(b, y, alpha))


@lowers("rsub")
def _rsub(b: Builder, x: Operand, y: Operand, alpha: float = 1) -> Value:
    return _sub(b, y, x, alpha)


def _scaled(b: Builder, y: Operand, alpha: float) -> Operand:
    return b.map("mul", y, alpha) if isinstance(y, Value) else y * alpha


@lowers("div")
def _div(b: Builder, x: Operand, y: Operand, rounding_mode: str | None = None) -> Value:
    if rounding_mode:
        raise Unsupported("rounded division")
    if any(isinstance(v, Value) and v.dtype != "float32" for v in (x, y)):
        raise Unsupported("division of integers")
    return b.map("div", x, y)


@lowers("addcmul")
def _addcmul(b: Builder, x: Value, y: Value, z: Value, value: float = 1) -> Value:
    return b.map("add", x, _scaled(b, b.map("mul", y, z), value) if value != 1 else b.map("mul", y, z))


@lowers("addcdiv")
def _addcdiv(b: Builder, x: Value, y: Value, z: Value, value: float = 1) -> Value:
    return b.map("add", x, b.map("mul", b.map("div", y, z), value))


@lowers("lerp")
def _lerp(b: Builder, x: Value, y: Value, weight: Operand) -> Value:
    return b.map("add", x, b.map("mul", b.map("sub", y, x), weight))


@lowers("pow.Tensor_Scalar")
def _pow_scalar(b: Builder, x: Value, exponent: float) -> Value:
    return power(b, x, float(exponent))


@lowers("pow.Tensor_Tensor", "pow.Scalar")
def _pow(b: Builder, x: Operand, y: Operand) -> Value:
    return b.map("pow", x, y)


@lowers("relu")
def _relu(b: Builder, x: Value) -> Value:
    return b.map("max", x, 0.0)


@lowers("silu")
def _silu(b: Builder, x: Value) -> Value:
    return b.map("mul", x, b.map("sigmoid", x))


@lowers("softplus")
def _softplus(b: Builder, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    scaled = b.map("mul", x, float(beta)) if beta != 1 else x
    soft = b.map("log1p", b.map("exp", scaled))
    soft = b.map("div", soft, float(beta)) if beta != 1 else soft
    return b.map("where", b.map("gt", scaled, float(threshold)), x, soft)


@lowers("mish")
def _mish(b: Builder, x: Value) -> Value:
    return b.map("mul", x, b.map("tanh", b.map("softplus", x)))


@lowers("leaky_relu")
def _leaky(b: Builder, x: Value, slope: float = 0.01) -> Value:
    return b.map("where", b.map("gt", x, 0.0), x, b.map("mul", x, float(slope)))


@lowers("elu")
def _elu(b: Builder, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    inner = b.map("mul", x, float(input_scale)) if input_scale != 1 else x
    low = b.map("mul", b.map("expm1", inner), float(alpha * scale))
    high = b.map("mul", x, float(scale)) if scale != 1 else x
    return b.map("where", b.map("gt", x, 0.0), high, low)


@lowers("clamp")
def _clamp(b: Builder, x: Value, min: Operand | None = None, max: Operand | None = None) -> Value:
    if min is not None:
        x = b.map("max", x, min if isinstance(min, Value) else float(min))
    if max is not None:
        x = b.map("min", x, max if isinstance(max, Value) else float(max))
    return x


@lowers("hardtanh")
def _hardtanh(b: Builder, x: Value, min_val: float = -1, max_val: float = 1) -> Value:
    return _clamp(b, x, min_val, max_val)


@lowers("clamp_min")
def _clamp_min(b: Builder, x: Value, low: Operand) -> Value:
    return _clamp(b, x, low)


@lowers("hardsigmoid")
def _hardsigmoid(b: Builder, x: Value) -> Value:
    return b.map("div", _clamp(b, b.map("add", x, 3.0), 0.0, 6.0), 6.0)


@lowers("hardswish")
def _hardswish(b: Builder, x: Value) -> Value:
    return b.map("mul", x, _hardsigmoid(b, x))


@lowers("where.self")
def _where(b: Builder, condition: Value, x: Operand, y: Operand) -> Value:
    return b.map("where", condition, x, y)


@lowers("masked_fill.Scalar")
def _masked_fill(b: Builder, x: Value, mask: Value, value: float) -> Value:
    return b.map("where", mask, float(value), x)


@lowers("_to_copy")
def _to_copy(b: Builder, x: Value, dtype: Any = None, **kw: Any) -> Value:
    wanted = dtype["dtype"] if isinstance(dtype, dict) else x.dtype
    if wanted == x.dtype == "float32":
        return b.map("copy", x)
    if wanted == "float32" and x.dtype in ("bool", "int64"):
        return b.map("float", x)
    raise Unsupported(f"cast {x.dtype} to {wanted}")


@lowers("clone")
def _clone(b: Builder, x: Value, memory_format: Any = None) -> Value:
    return b.map("copy", x)


@lowers("alias", "detach", "lift_fresh_copy", "contiguous")
def _same(b: Builder, x: Value, **kw: Any) -> Value:
    return x


# Views


@lowers("view", "_unsafe_view", "reshape")
def _view(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    known = 1
    for size in shape:
        known *= size if size != -1 else 1
    return b.reshape(x, [x.numel // known if s == -1 else s for s in shape])


@lowers("permute")
def _permute(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    return b.permute(x, dims)


@lowers("transpose.int")
def _transpose(b: Builder, x: Value, first: int, second: int) -> Value:
    perm = list(range(len(x.shape)))
    perm[first], perm[second] = perm[second], perm[first]
    return b.permute(x, perm)


@lowers("t")
def _t(b: Builder, x: Value) -> Value:
    return b.permute(x, range(len(x.shape))[::-1])


@lowers("expand")
def _expand(b: Builder, x: Value, shape: Sequence[int], implicit: bool = False) -> Value:
    return b.expand(x, shape)


@lowers("unsqueeze")
def _unsqueeze(b: Builder, x: Value, dim: int) -> Value:
    shape = list(x.shape)
    shape.insert(dim % (len(shape) + 1), 1)
    return b.reshape(x, shape)


@lowers("squeeze")
def _squeeze(b: Builder, x: Value, dims: int | Sequence[int] | None = None) -> Value:
    rank = len(x.shape)
    chosen = range(rank) if dims is None else [d % rank for d in ([dims] if isinstance(dims, int) else dims)]
    return b.reshape(x, [s for i, s in enumerate(x.shape) if not (i in chosen and s == 1)])


@lowers("slice.Tensor")
def _slice(
    b: Builder, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    return b.slice(x, dim, start or 0, x.shape[dim] if end is None else end, step)


@lowers("select.int")
def _select(b: Builder, x: Value, dim: int, index: int) -> Value:
    dim %= len(x.shape)
    index %= x.shape[dim]
    return b.reshape(b.slice(x, dim, index, index + 1), [s for i, s in enumerate(x.shape) if i != dim])


@lowers("split_with_sizes")
def _split_with_sizes(b: Builder, x: Value, sizes: Sequence[int], dim: int = 0) -> list[Value]:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [b.slice(x, dim, s, s + n) for s, n in zip(starts, sizes, strict=True)]


@lowers("split.Tensor")
def _split(b: Builder, x: Value, size: int, dim: int = 0) -> list[Value]:
    total = x.shape[dim]
    return [b.slice(x, dim, s, min(total, s + size)) for s in range(0, total, size)]
