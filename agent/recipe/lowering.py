"""From ProblemFacts to a Program: composite operators become maps and reductions, unknown ones stay ATen
calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from agent.recipe.graph import Builder, Program, Scalar, Unsupported, Value
from agent.recipe.rewrite import push_slices
from harness.worker.model import GraphNode, ProblemFacts, TensorSpec

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)
HANDLERS: dict[str, Handler] = {}


def lowers(*names: str) -> Callable[[H], H]:
    """Registers a lowering for ATen names, with (`sum.dim_IntList`) or without (`gelu`) their overload."""

    def register(handler: H) -> H:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


def build(facts: ProblemFacts) -> Program:
    """The program of a traced reference. Raises Unsupported when there is no graph to work on."""
    if facts.trace_error or not facts.nodes:
        raise Unsupported(facts.trace_error or "the trace has no operators")
    import agent.recipe.operators
    import agent.recipe.operators_reduce  # noqa: F401 - both fill HANDLERS

    b = Builder()
    env: dict[str, Any] = {}
    inputs = [_source(b, s, "input", env) for s in facts.inputs]
    for spec in (*facts.parameters, *facts.buffers):
        _source(b, spec, "state", env)
    for spec in facts.constants:
        _source(b, spec, "constant", env).attrs["values"] = facts.constant_values[spec.name]
    for node in facts.nodes:
        env[node.name] = _lower(b, node, env)
    program = Program(b.values, inputs, _resolve(facts.output_refs, env), facts.output_structure)
    structure = facts.input_structure or {"list": [{"t": i} for i in range(len(inputs))]}
    names = facts.argument_names or [v.name for v in inputs]
    program.arguments = [
        names[i] if i < len(names) else f"argument{i}" for i in range(len(structure["list"]))
    ]
    for name, argument in zip(program.arguments, structure["list"], strict=True):
        _walk(argument, name, program)
    program.prune()
    push_slices(b, program)
    program.prune()
    return program


def _walk(structure: Any, path: str, program: Program) -> None:
    """Notes where the tensors and the plain values of an argument are."""
    ((kind, body),) = structure.items()
    if kind == "t":
        program.paths.append(path)
    elif kind in ("list", "tuple"):
        for i, item in enumerate(body):
            _walk(item, f"{path}[{i}]", program)
    elif kind == "dict":
        for key, item in body:
            _walk(item, f"{path}[{key!r}]", program)
    elif kind == "v":
        program.plain.append((path, body))
    else:
        raise Unsupported(f"an argument that is a {kind}")


def _source(b: Builder, spec: TensorSpec, kind: Any, env: dict[str, Any]) -> Value:
    value = b.add(kind, spec.shape, spec.dtype, spec.name, hint=_identifier(spec.name))
    env[spec.name] = value
    return value


def _identifier(name: str) -> str:
    text = "".join(c if c.isalnum() else "_" for c in name)
    return f"w{text}" if text[0].isdigit() else text


def _resolve(arg: Any, env: dict[str, Any]) -> Any:
    if isinstance(arg, dict) and "ref" in arg:
        if arg["ref"] not in env:
            raise Unsupported(f"the graph refers to {arg['ref']!r}, which it does not define")
        return env[arg["ref"]]
    if isinstance(arg, (list, tuple)):
        return [_resolve(a, env) for a in arg]
    return arg


def operator_name(op: str) -> tuple[str, str, str]:
    """(`aten`, `sum`, `dim_IntList`) of `aten.sum.dim_IntList`, `aten::sum.dim_IntList` or
    `sum.dim_IntList`.
    """
    parts = op.replace("::", ".").split(".")
    if parts[0] not in ("aten", "prims") and len(parts) < 3:
        parts = ["aten", *parts]
    return parts[0], parts[1], parts[2] if len(parts) > 2 else "default"


def _lower(b: Builder, node: GraphNode, env: dict[str, Any]) -> Any:
    args = _resolve(node.args, env)
    kwargs = {k: _resolve(v, env) for k, v in node.kwargs.items()}
    if node.op.endswith("getitem"):
        return args[0][args[1]]
    namespace, name, overload = operator_name(node.op)
    call = f"{namespace}.{name}.{overload}"
    if name == "scalar_tensor":
        return extern(b, call, args, kwargs, node.outputs)
    if namespace == "aten":
        handler = HANDLERS.get(f"{name}.{overload}") or HANDLERS.get(name)
        if handler:
            mark = len(b.values)
            try:
                plain = {k: _folded(v) for k, v in kwargs.items()}
                return _checked(handler(b, *_folded(args), **plain), node)
            except Exception:  # whatever a lowering stumbles over, the ATen call computes it
                b.forget(mark)
    return extern(b, call, args, kwargs, node.outputs)


def _folded(arg: Any) -> Any:
    """The argument with constant scalar tensors as plain numbers: those can stand inside a kernel."""
    if isinstance(arg, list):
        return [_folded(a) for a in arg]
    if not isinstance(arg, Value) or not arg.fn.startswith("aten.scalar_tensor"):
        return arg
    convert = {"float32": float, "int64": int, "bool": bool}.get(arg.dtype)
    return convert(arg.attrs["raw_args"][0]) if convert else arg


def _checked(result: Any, node: GraphNode) -> Any:
    """A lowering whose shape or dtype differs from the trace is wrong: the ATen call stays."""
    values = result if isinstance(result, (list, tuple)) else [result]
    for value, spec in zip(values, node.outputs, strict=False):
        if value is not None and not isinstance(value, Value):
            raise Unsupported(f"{node.op}: lowered to the number {value}")
        if value is not None and (value.shape != tuple(spec.shape) or value.dtype != spec.dtype):
            raise Unsupported(f"{node.op}: lowered to {value}, traced as {spec}")
    return result


def extern(
    b: Builder, fn: str, args: list[Any], kwargs: dict[str, Any], outputs: list[TensorSpec]
) -> Value | list[Value]:
    """An ATen call; several outputs are items of it."""
    operands: list[Value | Scalar] = []

    def collect(arg: Any) -> Any:
        if isinstance(arg, Value):
            operands.append(arg)
            return {"operand": len(operands) - 1}
        if isinstance(arg, (list, tuple)):
            return [collect(a) for a in arg]
        return arg

    raw_args = [collect(a) for a in args]
    raw_kwargs = {k: collect(v) for k, v in kwargs.items() if k not in ("device", "layout", "pin_memory")}
    first = outputs[0] if outputs else TensorSpec("none", (), "none", ())
    call = b.add(
        "extern",
        first.shape,
        first.dtype,
        fn,
        tuple(operands),
        hint=fn.split(".")[1],
        raw_args=raw_args,
        raw_kwargs=raw_kwargs,
        many=len(outputs) > 1,
    )
    if len(outputs) <= 1:
        return call
    return [
        b.add("item", s.shape, s.dtype, "item", (call,), hint=f"{call.name}_{i}", index=i)
        for i, s in enumerate(outputs)
    ]


# Building blocks that several operators share.


def scaled_sum(b: Builder, x: Value, dims: list[int] | None, keepdim: bool) -> Value:
    """The mean: sum over `dims`, divided by the number of elements that were summed."""
    total = b.reduce("sum", x, dims, True)
    mean = b.map("div", total, float(x.numel // max(1, total.numel)))
    return b.squeeze(mean, x, dims, keepdim)


def normalise(b: Builder, x: Value, dims: list[int], eps: float) -> tuple[Value, Value, Value]:
    """((x - mean) * rstd, mean, rstd) with the biased variance over `dims`; statistics keep their
    dimensions.
    """
    mean, m2 = b.composite("meanvar", x, dims)
    count = x.numel // mean.numel
    rstd = b.map("rsqrt", b.map("add", b.map("div", m2, float(count)), eps))
    return b.map("mul", b.map("sub", x, mean), rstd), mean, rstd


def affine(b: Builder, x: Value, weight: Value | None, bias: Value | None, shape: list[int]) -> Value:
    if weight is not None:
        x = b.map("mul", x, b.reshape(weight, shape))
    return b.map("add", x, b.reshape(bias, shape)) if bias is not None else x


def square(b: Builder, x: Value) -> Value:
    return b.map("mul", x, x)


def power(b: Builder, x: Value, exponent: float) -> Value:
    """Small whole and half exponents become products and square roots, as the eager kernel computes them."""
    simple: dict[float, Callable[[], Value]] = {
        1.0: lambda: b.map("copy", x),
        2.0: lambda: square(b, x),
        3.0: lambda: b.map("mul", square(b, x), x),
        4.0: lambda: square(b, square(b, x)),
        0.5: lambda: b.map("sqrt", x),
        -0.5: lambda: b.map("rsqrt", x),
        -1.0: lambda: b.map("reciprocal", x),
        -2.0: lambda: b.map("reciprocal", square(b, x)),
    }
    return simple[exponent]() if exponent in simple else b.map("pow", x, float(exponent))


def gelu(b: Builder, x: Value, approximate: str = "none") -> Value:
    """x Phi(x), with Phi by erf or by the tanh approximation (Hendrycks and Gimpel, arXiv:1606.08415)."""
    if approximate == "tanh":
        inner = b.map("add", x, b.map("mul", power(b, x, 3.0), 0.044715))
        phi = b.map("tanh", b.map("mul", inner, math.sqrt(2 / math.pi)))
    else:
        phi = b.map("erf", b.map("mul", x, math.sqrt(0.5)))
    return b.map("mul", b.map("mul", x, 0.5), b.map("add", phi, 1.0))


def matching(shape: list[int], rank: int, channel: int = 1) -> list[int]:
    """The shape that lets a vector of channels broadcast against a tensor of `rank` dimensions."""
    return [shape[0] if i == channel else 1 for i in range(rank)]
