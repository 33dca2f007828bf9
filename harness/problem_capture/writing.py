"""The text of a captured problem."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from harness.errors import ProblemError
from harness.problem_capture.construction import call_text, is_plain, render
from harness.problem_capture.source import Closure, NotSelfContained
from harness.problem_capture.tensors import QUANTILES, expression, helpers

_RESERVED = ("get_inputs", "get_init_inputs", "META", QUANTILES)


def problem_text(
    module: nn.Module | Any,
    constructed: inspect.BoundArguments | None,
    inputs: inspect.BoundArguments,
    texts: Mapping[str, str],
    notes: str,
) -> tuple[str, list[str]]:
    """The file's text, and the installed packages that it imports beside torch.

    `constructed`: the constructor's arguments; None for a function. Raises ProblemError.
    """
    closure = Closure()
    thing = type(module) if isinstance(module, nn.Module) else module
    closure.need("import torch")
    name = closure.add(thing)
    model, init = _model(closure, name, module, constructed, inputs)
    drawn = get_inputs_text(inputs, texts)
    for reserved in _RESERVED:
        if closure.defines(reserved):
            raise NotSelfContained(f"the program uses the name {reserved}, a problem's own", "rename it")
    says = f'"""{name} of {thing.__module__}, captured with example inputs."""'
    meta = f"META = {{'notes': {notes!r}}}" if notes else ""
    parts = [says + "\n\n" + closure.text().rstrip(), model, *helpers(drawn), drawn, init, meta]
    return "\n\n\n".join(filter(None, parts)) + "\n", sorted(closure.packages)


def _model(
    closure: Closure,
    name: str,
    module: Any,
    constructed: inspect.BoundArguments | None,
    inputs: inspect.BoundArguments,
) -> tuple[str, str]:
    """The class Model, and get_init_inputs."""
    passed = _passed_on(inputs)
    if constructed is None:
        names = ", ".join(_names(inputs))
        body = f"    def forward(self, {names}):\n        return {name}({passed or names})"
        return f"class Model(torch.nn.Module):\n{body}", "def get_init_inputs():\n    return []"
    if constructed.kwargs:
        constructed.apply_defaults()
    plain = not constructed.kwargs and all(map(is_plain, constructed.args[1:]))
    listed = constructed.args[1:] if plain else ()
    after = [] if module.training else ["self.eval()"]
    dtypes = {t.dtype for t in module.state_dict().values() if t.is_floating_point()}
    if len(dtypes) == 1 and dtypes != {torch.float32}:
        after.append(f"self.to({dtypes.pop()})")
    methods = []
    if after or not plain:
        arguments = "*args" if plain else call_text(constructed, closure.add)
        lines = [f"super().__init__({arguments})", *after]
        methods.append(f"def __init__(self{', *args' if plain else ''}):\n    " + "\n    ".join(lines))
    if passed:
        names = ", ".join(_names(inputs))
        methods.append(f"def forward(self, {names}):\n    return super().forward({passed})")
    init = f"def get_init_inputs():\n    return [{', '.join(render(v, closure.add) for v in listed)}]"
    if name == "Model" and not methods:
        return "", init
    body = "\n\n".join(methods) or "pass"
    return f"class Model({name}):\n{textwrap.indent(body, '    ')}", init


def _passed_on(inputs: inspect.BoundArguments) -> str:
    """How forward's arguments are written where some can only be named; empty where all are positional."""
    if not inputs.kwargs:
        return ""
    names = _names(inputs)
    count = len(inputs.args)
    return ", ".join([*names[:count], *(f"{key}={key}" for key in inputs.kwargs)])


def _names(inputs: inspect.BoundArguments) -> list[str]:
    """A name for each argument, those that can only be named last."""
    names: list[str] = []
    for key in inputs.arguments:
        kind = inputs.signature.parameters[key].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{key}_{i}" for i in range(len(inputs.arguments[key]))]
        elif kind is not inspect.Parameter.VAR_KEYWORD and key not in inputs.kwargs:
            names.append(key)
    return [*names, *inputs.kwargs]


def get_inputs_text(inputs: inspect.BoundArguments, texts: Mapping[str, str]) -> str:
    """The function get_inputs: one variable for each tensor, one list of all arguments."""
    lines: list[str] = []
    seen: dict[int, str] = {}

    def part(value: Any, name: str) -> str:
        if isinstance(value, torch.Tensor):
            if id(value) not in seen:
                seen[id(value)] = name
                drawn = texts.get(name) or expression(value)
                lines.append(f"{name} = {ast.unparse(ast.parse(drawn, mode='eval'))}")
            return seen[id(value)]
        if isinstance(value, list | tuple):
            inner = ", ".join(part(v, f"{name}_{i}") for i, v in enumerate(value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        if isinstance(value, dict):
            return (
                "{"
                + ", ".join(f"{k!r}: {part(v, f'{name}_{i}')}" for i, (k, v) in enumerate(value.items()))
                + "}"
            )
        if not is_plain(value):
            raise ProblemError(
                f"the input {name} is a {type(value).__qualname__}",
                "a problem's inputs are tensors, plain values, and lists and dicts of them",
            )
        return render(value, str)

    values = [*inputs.args, *inputs.kwargs.values()]
    listed = [part(value, name) for name, value in zip(_names(inputs), values, strict=True)]
    body = [*lines, f"return [{', '.join(listed)}]"]
    return "def get_inputs():\n    " + "\n    ".join(body)
