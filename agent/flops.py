"""How much arithmetic a traced reference needs, for the compute side of the roofline."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

# Vectorised polynomial approximations of these cost about this many fp32 operations per element.
_TRANSCENDENTAL = 16
_COSTLY = re.compile(
    r"_?(expm?[12]?|log(2|10|1p|it|sumexp|addexp)?|tanh|erfc?|sigmoid|gelu|silu|softplus|mish|[sc]?elu|sin|cos|tan|"
    r"pow|log_sigmoid\w*|(log_)?softmax|\w*cross_entropy\w*)"
)
_FREE = re.compile(
    r"^(view|reshape|permute|transpose|t|expand|slice|select|squeeze|unsqueeze|getitem|detach|alias|clone|"
    r"split|chunk|unbind|as_strided|empty|contiguous|_to_copy|to|_unsafe_view|flatten)"
)


def count_operations(facts: Mapping[str, Any]) -> int:
    """fp32 operations of the reference: exact for products and convolutions, an estimate for the rest.

    A multiply-add counts as two. Element-wise and reducing operators count one per element that they read,
    sixteen for transcendental functions. 0 when the reference was not traced.
    """
    shapes: dict[str, list[int]] = {}
    for group in ("inputs", "parameters", "buffers", "constants"):
        for spec in facts.get(group) or []:
            shapes[spec["name"]] = list(spec["shape"])
    total = 0
    for node in facts.get("nodes") or []:
        op = re.sub(r"^(?:torch\.ops\.)?aten[.:]+", "", str(node["op"])).split(".")[0]
        outputs = [list(spec["shape"]) for spec in node["outputs"]]
        inputs = [shapes[ref] for ref in _refs(node["args"]) if ref in shapes]
        total += _cost(op, inputs, outputs)
        if outputs:
            shapes[node["name"]] = outputs[0]
    return total


def _cost(op: str, inputs: list[list[int]], outputs: list[list[int]]) -> int:
    out = math.prod(outputs[0]) if outputs else 0
    if op in ("mm", "bmm", "matmul", "mv", "dot", "linear", "einsum") and inputs:
        return 2 * out * inputs[0][-1] if inputs[0] else 0
    if op in ("addmm", "baddbmm", "addmv") and len(inputs) > 1:
        return 2 * out * inputs[1][-1]
    if "convolution" in op or re.fullmatch(r"conv\dd", op):
        return 2 * out * math.prod(inputs[1][1:]) if len(inputs) > 1 else 0
    if "scaled_dot_product" in op and len(inputs) > 1:
        return 4 * math.prod(inputs[0]) * inputs[1][-2]
    if _FREE.match(op):
        return 0
    touched = max([out, *(math.prod(shape) for shape in inputs)])
    return touched * (_TRANSCENDENTAL if _COSTLY.fullmatch(op) else 1)


def _refs(value: Any) -> list[str]:
    """Names of the values that an argument list refers to, in order."""
    if isinstance(value, Mapping):
        return [str(value["ref"])] if "ref" in value else []
    if isinstance(value, list):
        return [name for item in value for name in _refs(item)]
    return []
