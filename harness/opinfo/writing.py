"""The text of a problem that is one call of a torch function."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Mapping
from typing import Any

import torch

from harness.problem_capture.construction import render
from harness.problem_capture.source import public_name
from harness.problem_capture.tensors import expression, helpers

Shape = tuple[int, ...]


def problem_text(
    function: str, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Mapping[int, Shape], notes: str
) -> str:
    """`function` is an expression such as `torch.softmax`, or `torch.Tensor.expand` for a method; `shapes`
    maps the id of each tensor among the arguments to the shape that it shall have.

    Raises ProblemError for an argument that has no text.
    """
    names: dict[int, str] = {}
    drawn: list[str] = []

    def text(value: Any, name: str) -> str:
        if isinstance(value, torch.Tensor):
            if id(value) not in names:
                names[id(value)] = unique = _unique(name, names)
                drawn.append(f"{unique} = {_drawn(value, shapes[id(value)])}")
            return names[id(value)]
        if type(value) in (list, tuple):
            parts = ", ".join(text(v, f"{name}{i}") for i, v in enumerate(value))
            return f"[{parts}]" if isinstance(value, list) else f"({parts}{',' if len(value) == 1 else ''})"
        return render(value, public_name)

    positional = [text(value, "input" if i == 0 else f"arg{i}") for i, value in enumerate(args)]
    named = [f"{key}={text(value, key)}" for key, value in kwargs.items()]
    inputs = ", ".join(names.values())
    lines = "\n".join(f"    {line}" for line in drawn)
    parts = [
        f'"""One operator: {notes}."""\n\nimport torch',
        "class Model(torch.nn.Module):\n"
        f"    def forward(self, {inputs}):\n"
        f"        return {_call(function, positional, named)}",
        *helpers(lines),
        f"def get_inputs():\n{lines}\n    return [{inputs}]",
        "def get_init_inputs():\n    return []",
    ]
    return "\n\n\n".join(parts) + "\n"


def _drawn(tensor: torch.Tensor, shape: Shape) -> str:
    return ast.unparse(ast.parse(expression(tensor, shape), mode="eval"))


def _call(function: str, positional: list[str], named: list[str]) -> str:
    method = function.removeprefix("torch.Tensor.")
    if method == function:
        return f"{function}({', '.join([*positional, *named])})"
    if method.endswith(".__get__"):
        return f"{positional[0]}.{method.removesuffix('.__get__')}"
    return f"{positional[0]}.{method}({', '.join([*positional[1:], *named])})"


def _unique(name: str, names: Mapping[int, str]) -> str:
    name = f"{name}_" if keyword.iskeyword(name) else name
    while name in names.values():
        name += "_"
    return name
