"""C++ text of maps over ke::vf vectors (masks are ke::vi) or over scalars."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agent.recipe.graph import Scalar, Unsupported

#: Rough instruction counts, to weigh recomputing a value against storing it.
COST = {
    "exp": 10, "expm1": 11, "log": 12, "log1p": 16, "log2": 13, "log10": 13, "exp2": 11, "tanh": 16,
    "sigmoid": 14, "erf": 26, "softplus": 30, "sin": 14, "cos": 14, "pow": 200,
    "div": 4, "sqrt": 6, "rsqrt": 8, "reciprocal": 4, "floor": 4, "ceil": 4, "round": 3, "trunc": 4,
}  # fmt: skip

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_LOGIC = {"and": "&", "or": "|", "xor": "^"}
_UNARY = {
    "exp", "expm1", "log", "log1p", "log2", "log10", "exp2", "sqrt", "rsqrt", "tanh", "sigmoid", "erf",
    "softplus", "sin", "cos", "floor", "ceil", "round", "trunc", "sign", "abs",
}  # fmt: skip

#: Everything `render` knows.
FUNCTIONS = {
    *_INFIX, *_COMPARE, *_LOGIC, *_UNARY,
    "neg", "not", "copy", "reciprocal", "isnan", "isinf", "max", "min", "pow", "where", "float",
}  # fmt: skip


@dataclass(frozen=True)
class Operand:
    """Text of an operand, its dtype and whether it is a vector in a vector context."""

    text: str
    dtype: str
    vector: bool


def literal(value: Scalar, dtype: str) -> str:
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "int64":
        return f"int64_t({int(value)})"
    number = float(value)
    if math.isnan(number):
        return "ke::kNaN"
    if math.isinf(number):
        return "ke::kInf" if number > 0 else "-ke::kInf"
    text = f"{number:.9g}"
    return text + ("f" if any(c in text for c in ".e") else ".0f")


def c_type(dtype: str, vector: bool) -> str:
    if vector:
        return {"float32": "ke::vf", "bool": "ke::vi"}[dtype]
    return {"float32": "float", "bool": "bool", "int64": "int64_t"}[dtype]


def render(fn: str, operands: list[Operand], dtype: str, vector: bool) -> str:
    """The expression. Raises Unsupported for a function that has no text."""

    def full(o: Operand) -> str:
        """The operand with the context's own type."""
        if not vector or o.vector:
            return (
                f"ke::vf({o.text})"
                if vector and o.dtype == "float32" and not o.text.isidentifier()
                else o.text
            )
        return f"ke::splat_mask({o.text})" if o.dtype == "bool" else f"ke::splat<ke::vf>({o.text})"

    if vector and not any(o.vector for o in operands):
        operands = [Operand(full(o), o.dtype, True) for o in operands]
    texts = [o.text for o in operands]
    if fn in _INFIX:
        return f"{texts[0]} {_INFIX[fn]} {texts[1]}"
    if fn in _COMPARE and operands[0].dtype != "bool":
        return f"{texts[0]} {_COMPARE[fn]} {texts[1]}"
    if fn in _LOGIC:
        return f"{full(operands[0])} {_LOGIC[fn]} {full(operands[1])}"
    if fn in _UNARY:
        return f"ke::{fn}({full(operands[0])})"
    if fn == "neg":
        return f"-{texts[0]}"
    if fn == "not":
        return f"~{texts[0]}" if vector else f"!{texts[0]}"
    if fn == "copy":
        return full(operands[0])
    if fn == "reciprocal":
        return f"1.0f / {texts[0]}"
    if fn == "isnan":
        return f"{texts[0]} != {texts[0]}"
    if fn == "isinf":
        return f"ke::abs({full(operands[0])}) == ke::kInf"
    if fn in ("max", "min"):
        if dtype == "int64":
            return f"{texts[0]} {'>' if fn == 'max' else '<'} {texts[1]} ? {texts[0]} : {texts[1]}"
        return f"ke::{fn}({full(operands[0])}, {full(operands[1])})"
    if fn == "pow":
        return f"ke::pow({full(operands[0])}, {full(operands[1])})"
    if fn == "where":
        return f"ke::select({', '.join(full(o) for o in operands)})"
    if fn == "float":
        if operands[0].dtype == "bool" and vector:
            return f"ke::to_value<ke::vf>({texts[0]})"
        return f"static_cast<float>({texts[0]})"
    raise Unsupported(f"no C++ text for {fn} on {operands[0].dtype}")
