"""The candidate file: C++ source, a module that owns the reference's weights, and a forward that calls the kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.recipe.graph import Program, Value
from agent.recipe.layout import contiguous
from agent.recipe.torchtext import python

_HEAD = '''"""{title}

{notes}
"""

import torch
from harness.native import load_cpp

CPP_SOURCE = r"""
#include <ke_vector.h>
{cpp}"""

_lib = load_cpp(CPP_SOURCE, flags={flags})


def _dense(tensor):
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def _expect(tensor, shape, dtype, name):
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(f"{{name}}: specialised for {{dtype}} {{shape}}, got {{tensor.dtype}} {{tuple(tensor.shape)}}")
    return _dense(tensor)


def _declare(module, path, tensor, parameter):
    """Registers a tensor under a dotted state-dict name."""
    *parents, leaf = path.split(".")
    for name in parents:
        if name not in module._modules:
            module.add_module(name, torch.nn.Module())
        module = module._modules[name]
    if parameter:
        module.register_parameter(leaf, torch.nn.Parameter(tensor, requires_grad=tensor.is_floating_point()))
    else:
        module.register_buffer(leaf, tensor)
'''


@dataclass
class Body:
    """The statements of `forward`, written as values are asked for."""

    program: Program
    lines: list[str] = field(default_factory=list)
    names: dict[Value, str] = field(default_factory=dict)
    #: Values whose memory is known to be contiguous.
    dense: set[Value] = field(default_factory=set)

    def ref(self, value: Value) -> str:
        """The variable that holds `value`, computing it first where it is a view, a weight or an unfused map."""
        if value in self.names:
            return self.names[value]
        if value.kind == "state":
            return self._bind(value, _attribute(value.fn))
        return self._bind(value, python(value, self.ref))

    def memory(self, value: Value) -> str:
        """As `ref`, with contiguous memory, for a kernel's pointer."""
        name = self.ref(value)
        if value not in self.dense:
            self.lines.append(f"{name} = _dense({name})")
            self.dense.add(value)
        return name

    def allocate(self, value: Value) -> str:
        dtype = "" if value.dtype == "float32" else f", dtype=torch.{value.dtype}"
        self.dense.add(value)
        return self._bind(value, f"torch.empty({_tuple(value.shape)}{dtype})")

    def _bind(self, value: Value, text: str) -> str:
        name = value.name
        while name in ("torch", "self") or name in self.names.values():
            name += "_"
        self.names[value] = name
        self.lines.append(f"{name} = {text}")
        return name

    def returned(self) -> str:
        outputs = self.program.outputs

        def text(tree: Any) -> str:
            if isinstance(tree, Value):
                return self.ref(tree)
            if isinstance(tree, list):
                return "(" + "".join(text(t) + ", " for t in tree) + ")"
            return repr(tree)

        if self.program.single_output and isinstance(outputs, list) and len(outputs) == 1:
            return text(outputs[0])
        return text(outputs)


def start(program: Program) -> Body:
    """A body whose inputs are checked and dense."""
    body = Body(program)
    for value in program.inputs:
        body.names[value] = value.name
        body.dense.add(value)
        shape = _tuple(value.shape)
        body.lines.append(f'{value.name} = _expect({value.name}, {shape}, torch.{value.dtype}, "{value.fn}")')
    return body


def render(
    body: Body,
    *,
    title: str,
    notes: Sequence[str],
    cpp: str,
    flags: Sequence[str],
    parameters: Mapping[str, tuple[tuple[int, ...], str]],
    buffers: Mapping[str, tuple[tuple[int, ...], str]],
) -> str:
    """The complete file. `parameters` and `buffers` map state-dict names to (shape, dtype)."""
    returned = body.returned()
    lines = [_HEAD.format(title=title, notes="\n".join(notes), cpp=indented(cpp), flags=_tuple(flags)), "\n"]
    lines += ["class ModelNew(torch.nn.Module):", "    def __init__(self, *args, **kwargs):", "        super().__init__()"]
    if parameters or buffers:
        lines.append("        generator = torch.Generator().manual_seed(0)")
    for table, is_parameter in ((parameters, True), (buffers, False)):
        for name, (shape, dtype) in table.items():
            initial = f"torch.zeros({_tuple(shape)}, dtype=torch.{dtype})"
            if dtype == "float32":
                scale = f" / {max(1, shape[-1])} ** 0.5" if len(shape) > 1 else " * 0.1 + 1.0"
                initial = f"torch.randn({_tuple(shape)}, generator=generator){scale}"
            lines.append(f'        _declare(self, "{name}", {initial}, {is_parameter})')
    signature = ", ".join(["self", *(v.name for v in body.program.inputs)])
    lines += ["", "    @torch.no_grad()", f"    def forward({signature}):"]
    lines += [f"        {line}" for line in body.lines]
    lines.append(f"        return {returned}")
    return "\n".join(lines) + "\n"


def _tuple(items: Sequence[Any]) -> str:
    return "(" + "".join(f'"{i}", ' if isinstance(i, str) else f"{i}, " for i in items).strip() + ")"


def _attribute(path: str) -> str:
    text = "self"
    for part in path.split("."):
        text = f"{text}.{part}" if part.isidentifier() else f'getattr({text}, "{part}")'
    return text


def is_dense(value: Value) -> bool:
    return tuple(value.attrs.get("stride", ())) == contiguous(value.shape)


def indented(cpp: str) -> str:
    """C++ text indented by its braces, without blank lines inside functions."""
    depth, result = 0, []
    for raw in cpp.splitlines():
        line = raw.strip()
        if not line:
            continue
        level = depth - (line[0] in "})")
        if line.startswith('extern "C"') and result:
            result.append("")
        result.append(line if line.startswith("#") else "  " * max(0, level) + line)
        depth += line.count("{") - line.count("}")
    return "\n".join(result) + "\n"
