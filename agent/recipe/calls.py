"""ATen calls that a skill of kind `operator` implements: their geometry and their call."""

from __future__ import annotations

from math import prod
from typing import Any

from agent.recipe.graph import Unsupported, Value
from agent.recipe.module import Body
from agent.recipe.skills import ExecutableSkill, Params


def geometry(value: Value) -> dict[str, int]:
    """Sizes of a scan (outer, size, inner) or of a window over the last two dimensions. Raises
    Unsupported.
    """
    operands = list(value.operands())
    if not operands or operands[0].dtype != "float32" or value.dtype != "float32":
        raise Unsupported("float32 only")
    x = operands[0]
    arguments = list(value.attrs["raw_args"][1:])
    operator = value.fn.split(".")[1]
    if operator in ("cumsum", "cumprod"):
        dim = int(arguments[0]) % len(x.shape)
        sizes = {"outer": prod(x.shape[:dim]), "size": x.shape[dim], "inner": prod(x.shape[dim + 1 :])}
        return {**sizes, "rows": sizes["outer"] * sizes["inner"], "cols": sizes["size"]}
    if operator in ("avg_pool2d", "max_pool2d_with_indices") and len(x.shape) == 4:
        return _window(operator, x, value, arguments)
    raise Unsupported(operator)


def _window(operator: str, x: Value, value: Value, arguments: list[Any]) -> dict[str, int]:
    def pair(position: int, default: list[int]) -> list[int]:
        given = arguments[position] if len(arguments) > position and arguments[position] else default
        given = [given] if isinstance(given, int) else list(given)
        return given * 2 if len(given) == 1 else given

    kernel = pair(0, [1, 1])
    stride, padding = pair(1, kernel), pair(2, [0, 0])
    rest = arguments[3:]
    if operator == "avg_pool2d":
        ceil, include, divisor = (rest + [False, True, None][len(rest) :])[:3]
        if ceil or divisor or (padding != [0, 0] and not include):
            raise Unsupported("a window with ceil mode or another divisor")
    elif any(r not in (False, [1, 1], [1]) for r in rest):
        raise Unsupported("a dilated window or ceil mode")
    names = ("kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w")
    sizes = dict(zip(names, (*kernel, *stride, *padding), strict=True))
    sizes |= {"planes": prod(x.shape[:2]), "height": x.shape[2], "width": x.shape[3]}
    return {
        **sizes,
        "out_h": value.shape[2],
        "out_w": value.shape[3],
        "rows": sizes["planes"],
        "cols": x.shape[3],
    }


def emit(value: Value, skill: ExecutableSkill, params: Params, body: Body, name: str) -> str:
    """Writes the call into `body` and returns the C++."""
    sizes = geometry(value)
    operator = value.fn.split(".")[1]
    source = body.memory(next(value.operands()))
    text = skill.render(name=name, g=sizes, operator=operator, p=params)
    items = [v for v in body.program.values if v.kind == "item" and value in v.args]
    result = body.allocate(items[0] if value.attrs["many"] else value)
    body.lines.append(f"_lib.{name}({source}, {result})")
    return text


def matches(skill: ExecutableSkill, value: Value, users: list[Value]) -> bool:
    """Whether the skill can take the call: geometry, declared limits, and only the first output is read."""
    if value.kind != "extern" or skill.kind != "operator":
        return False
    if value.attrs["many"] and any(u.kind != "item" or u.attrs["index"] for u in users):
        return False
    try:
        return skill.applies_to_call(value, geometry(value))
    except Unsupported:
        return False
