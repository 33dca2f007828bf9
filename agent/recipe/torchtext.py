"""Python text of the values that no kernel computes: ATen calls, views and unfused maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent.recipe.graph import Unsupported, Value

Ref = Callable[[Value], str]

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "and": "&", "or": "|", "xor": "^", "pow": "**",
}  # fmt: skip
_CALLS = {
    "max": "torch.maximum", "min": "torch.minimum", "not": "torch.logical_not", "copy": "torch.clone",
    "softplus": "torch.nn.functional.softplus", "erf": "torch.special.erf",
}  # fmt: skip
_REDUCE = {
    "sum": "torch.sum({x}, dim={d}, keepdim=True)",
    "max": "torch.amax({x}, dim={d}, keepdim=True)",
    "min": "torch.amin({x}, dim={d}, keepdim=True)",
    "meanvar.mean": "torch.mean({x}, dim={d}, keepdim=True)",
    "meanvar.m2": "torch.var({x}, dim={d}, correction=0, keepdim=True) * {n}",
    "softmax.max": "torch.amax({x}, dim={d}, keepdim=True)",
    "softmax.sum": "torch.exp({x} - torch.amax({x}, dim={d}, keepdim=True)).sum(dim={d}, keepdim=True)",
}


def python(value: Value, ref: Ref) -> str:
    """The expression that computes `value`; `ref` gives the text of an operand. Raises Unsupported."""
    if value.kind == "view":
        return _view(value, ref)
    if value.kind == "extern":
        return call(value, ref)
    if value.kind == "item":
        return f"{ref(next(value.operands()))}[{value.attrs['index']}]"
    if value.kind == "pick":
        source, index = value.operands()
        return f"torch.gather({ref(source)}, {value.attrs['dim']}, {ref(index)})"
    if value.kind == "reduce":
        return _reduction(value, ref)
    return _map(value, ref)


def _map(value: Value, ref: Ref) -> str:
    fn = value.fn
    texts = [ref(a) if isinstance(a, Value) else _scalar(a) for a in value.args]
    if fn in _INFIX:
        return f" {_INFIX[fn]} ".join(f"({t})" if t.startswith("-") else t for t in texts)
    if fn in ("max", "min") and not all(isinstance(a, Value) for a in value.args):
        tensor, number = sorted(
            zip(value.args, texts, strict=True), key=lambda p: not isinstance(p[0], Value)
        )
        return f"torch.clamp({tensor[1]}, {(fn == 'max' and 'min') or 'max'}={number[1]})"
    if fn == "where":
        return f"torch.where({', '.join(texts)}).to(torch.{value.dtype})"
    if fn == "float":
        return f"{texts[0]}.to(torch.float32)"
    if fn == "neg":
        return f"-{texts[0]}"
    return f"{_CALLS.get(fn, f'torch.{fn}')}({', '.join(texts)})"


def literal(value: Any) -> str:
    """Python text of a number or of nested lists of numbers."""
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    return f'float("{value}")' if isinstance(value, float) and value - value != 0 else repr(value)


def _reduction(value: Value, ref: Ref) -> str:
    (x,) = value.operands()
    dims = list(value.attrs["dims"])
    if value.fn == "prod":
        text = ref(x)
        for dim in dims:
            text = f"torch.prod({text}, dim={dim}, keepdim=True)"
        return text
    return _REDUCE[value.fn].format(x=ref(x), d=dims, n=x.numel // value.numel)


def _view(value: Value, ref: Ref) -> str:
    (source,) = value.operands()
    text = ref(source)
    if value.fn == "permute":
        return f"{text}.permute({', '.join(map(str, value.attrs['perm']))})"
    if value.fn == "slice":
        dim, start, step = (value.attrs[k] for k in ("dim", "start", "step"))
        if step == 1:
            return f"{text}.narrow({dim}, {start}, {value.shape[dim]})"
        return f"{text}[{':, ' * dim}{start}:{start + step * value.shape[dim]}:{step}]"
    return f"{text}.{value.fn}({list(value.shape)})"


def call(value: Value, ref: Ref) -> str:
    """The ATen call of an `extern` value."""
    operands = list(value.operands())

    def text(arg: Any) -> str:
        if isinstance(arg, dict) and "operand" in arg:
            return ref(operands[arg["operand"]])
        if isinstance(arg, dict) and "dtype" in arg:
            return f"torch.{arg['dtype']}"
        if isinstance(arg, dict) and "memory_format" in arg:
            return f"torch.{arg['memory_format']}"
        if isinstance(arg, dict):
            raise Unsupported(f"{value.fn}: argument {arg}")
        if isinstance(arg, list):
            return "[" + ", ".join(text(a) for a in arg) + "]"
        if isinstance(arg, str) and arg.startswith("torch."):
            return arg
        return _scalar(arg)

    args = [text(a) for a in value.attrs["raw_args"]]
    args += [f"{k}={text(v)}" for k, v in value.attrs["raw_kwargs"].items()]
    return f"torch.ops.{value.fn}({', '.join(args)})"
