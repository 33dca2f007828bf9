"""The intermediate representation: a list of values, each a map, a reduction, a view, a pick or an
ATen call.
"""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Scalar = bool | int | float
Kind = Literal["input", "state", "constant", "map", "reduce", "view", "pick", "extern", "item"]

#: Reductions with two results: (mean, sum of squared deviations) and (maximum, sum of exp(x - maximum)).
COMPOSITE = {"meanvar": ("mean", "m2"), "softmax": ("max", "sum")}


class Unsupported(Exception):
    """This operator or this use of it has no lowering."""


@dataclass(eq=False)
class Value:
    """One tensor of the program.

    `fn` names the map, reduction, view or ATen operator. `args` holds operands: values, and for maps Python
    scalars. `attrs` holds the rest: `dims` of a reduction (non-negative, sorted), parameters of a view
    (`perm`, or `dim/start/step`), the raw arguments of an ATen call, the index of an item.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    fn: str = ""
    args: tuple[Value | Scalar, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    def operands(self) -> Iterator[Value]:
        for arg in self.args:
            if isinstance(arg, Value):
                yield arg

    def __repr__(self) -> str:
        args = ", ".join(a.name if isinstance(a, Value) else repr(a) for a in self.args)
        return f"{self.name}: {self.kind} {self.fn}({args}) {list(self.shape)} {self.dtype}"


@dataclass
class Program:
    """A straight-line program. `arguments` are forward's; `structure` nests the leaves of its result.

    `outputs` are the leaves (values or plain constants); `paths` says where each input is in the arguments,
    `plain` which other arguments the trace has fixed: (path, value).
    """

    values: list[Value]
    inputs: list[Value]
    outputs: list[Any]
    structure: Any
    arguments: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    plain: list[tuple[str, Any]] = field(default_factory=list)

    def users(self) -> dict[Value, list[Value]]:
        table: dict[Value, list[Value]] = {v: [] for v in self.values}
        for value in self.values:
            for operand in dict.fromkeys(value.operands()):
                table[operand].append(value)
        return table

    def output_values(self) -> list[Value]:
        return [v for v in self.outputs if isinstance(v, Value)]

    def prune(self) -> None:
        """Drops values that no output needs."""
        live: set[Value] = set()
        stack = self.output_values()
        while stack:
            value = stack.pop()
            if value not in live:
                live.add(value)
                stack.extend(value.operands())
        self.values = [v for v in self.values if v in live]


def broadcast(shapes: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The broadcast shape, as NumPy defines it. Raises Unsupported where the shapes do not match."""
    result: list[int] = []
    for shape in shapes:
        padded = [1] * (len(result) - len(shape)) + list(shape)
        result = [1] * (len(padded) - len(result)) + result
        for i, size in enumerate(padded):
            if result[i] == 1:
                result[i] = size
            elif size not in (1, result[i]):
                raise Unsupported(f"cannot broadcast {shapes}")
    return tuple(result)


class Builder:
    """Appends values; equal maps and views of the same operands are shared."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._names: set[str] = set()
        self._known: dict[Any, Value] = {}

    def _name(self, hint: str) -> str:
        if keyword.iskeyword(hint) or hasattr(builtins, hint):
            hint += "_"  # values become variables of a Python function
        name, n = hint, 1
        while name in self._names:
            n += 1
            name = f"{hint}_{n}".replace("__", "_")
        self._names.add(name)
        return name

    def add(
        self,
        kind: Kind,
        shape: Sequence[int],
        dtype: str,
        fn: str,
        args: tuple[Value | Scalar, ...] = (),
        *,
        hint: str = "",
        **attrs: Any,
    ) -> Value:
        ids = tuple(id(a) if isinstance(a, Value) else (type(a).__name__, repr(a)) for a in args)
        key = (kind, fn, ids, repr(sorted(attrs.items())), tuple(shape), dtype)
        if kind in ("map", "reduce", "view", "pick") and key in self._known:
            return self._known[key]
        value = Value(self._name(hint or fn), kind, tuple(shape), dtype, fn, args, attrs)
        self.values.append(value)
        self._known[key] = value
        return value

    def forget(self, mark: int) -> None:
        """Drops what was appended since there were `mark` values (a lowering that failed half-way)."""
        del self.values[mark:]
        kept = set(self.values)
        self._known = {k: v for k, v in self._known.items() if v in kept}

    def map(self, fn: str, *args: Value | Scalar, dtype: str | None = None) -> Value:
        """An elementwise function with broadcasting. float32, bool and int64 only."""
        tensors = [a for a in args if isinstance(a, Value)]
        if any(t.dtype not in ("float32", "bool", "int64") for t in tensors):
            raise Unsupported(f"{fn} on {[t.dtype for t in tensors]}")
        if fn != "where" and all(t.dtype != "float32" for t in tensors):
            args = tuple(_whole(fn, a) for a in args)
        shape = broadcast(t.shape for t in tensors)
        return self.add("map", shape, dtype or result_dtype(fn, tensors), fn, args)

    def reduce(self, fn: str, x: Value, dims: Sequence[int] | None, keepdim: bool) -> Value:
        """`sum`, `prod`, `max` or `min` over `dims` (None or empty: all)."""
        if x.dtype != "float32":
            raise Unsupported(f"{fn} over {x.dtype}")
        return self.squeeze(self._reduced(fn, x, dims), x, dims, keepdim)

    def composite(self, fn: str, x: Value, dims: Sequence[int] | None) -> tuple[Value, Value]:
        """Both results of a composite reduction, with the reduced dimensions kept."""
        if x.dtype != "float32":
            raise Unsupported(f"{fn} over {x.dtype}")
        first, second = COMPOSITE[fn]
        return self._reduced(f"{fn}.{first}", x, dims), self._reduced(f"{fn}.{second}", x, dims)

    def _reduced(self, fn: str, x: Value, dims: Sequence[int] | None) -> Value:
        wanted = normal_dims(dims, len(x.shape))
        if x.numel == 0:
            raise Unsupported("empty reduction")
        shape = [1 if i in wanted else s for i, s in enumerate(x.shape)]
        return self.add("reduce", shape, "float32", fn, (x,), hint=fn.replace(".", "_"), dims=wanted)

    def squeeze(self, value: Value, x: Value, dims: Sequence[int] | None, keepdim: bool) -> Value:
        if keepdim:
            return value
        wanted = normal_dims(dims, len(x.shape))
        return self.reshape(value, [s for i, s in enumerate(x.shape) if i not in wanted])

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        if tuple(shape) == x.shape:
            return x
        if x.kind == "view" and x.fn == "reshape":
            (x,) = x.operands()
            return self.reshape(x, shape)
        return self.add("view", shape, x.dtype, "reshape", (x,))

    def permute(self, x: Value, perm: Sequence[int]) -> Value:
        order = tuple(p % len(x.shape) for p in perm)
        if order == tuple(range(len(order))):
            return x
        return self.add("view", [x.shape[p] for p in order], x.dtype, "permute", (x,), perm=order)

    def expand(self, x: Value, shape: Sequence[int]) -> Value:
        lead = len(shape) - len(x.shape)
        full = [x.shape[i - lead] if s == -1 else s for i, s in enumerate(shape)]
        if tuple(full) == x.shape:
            return x
        return self.add("view", full, x.dtype, "expand", (x,))

    def slice(self, x: Value, dim: int, start: int, end: int, step: int = 1) -> Value:
        dim %= len(x.shape)
        size = x.shape[dim]
        start = max(0, min(size, start + size if start < 0 else start))
        end = max(start, min(size, end + size if end < 0 else end))
        if (start, end, step) == (0, size, 1):
            return x
        shape = list(x.shape)
        shape[dim] = -(-(end - start) // step)
        return self.add("view", shape, x.dtype, "slice", (x,), dim=dim, start=start, step=step)


def _whole(fn: str, arg: Value | Scalar) -> Value | Scalar:
    """A number beside integers as an integer. Raises Unsupported for a fraction, which would promote them."""
    if not isinstance(arg, float):
        return arg
    if not arg.is_integer():
        raise Unsupported(f"{fn} of integers and {arg}")
    return int(arg)


_COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne", "isnan", "isinf", "not", "and", "or", "xor"}


def result_dtype(fn: str, tensors: Sequence[Value]) -> str:
    """The dtype of a map. Raises Unsupported for mixtures that a kernel would have to promote."""
    if fn in _COMPARISONS:
        return "bool"
    if fn == "float":
        return "float32"
    kinds = {t.dtype for t in (tensors[1:] if fn == "where" else tensors)}
    if len(kinds) != 1:
        raise Unsupported(f"{fn} mixes {sorted(kinds)}")
    (kind,) = kinds
    if kind == "bool" and fn not in ("where", "copy"):
        raise Unsupported(f"{fn} on bool")
    if kind == "int64" and fn not in ("where", "copy", "add", "sub", "mul", "neg", "max", "min"):
        raise Unsupported(f"{fn} on int64")
    return kind


def normal_dims(dims: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    if not dims:
        return tuple(range(rank))
    return tuple(sorted({d % rank for d in dims})) if rank else ()
