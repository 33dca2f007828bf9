"""The candidate file: C++ source, a module that owns the reference's weights, and a forward that calls the
kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.recipe.graph import Program, Value
from agent.recipe.torchtext import literal, python

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
        found = f"{{tensor.dtype}} {{tuple(tensor.shape)}}"
        raise ValueError(f"{{name}}: specialised for {{dtype}} {{shape}}, got {{found}}")
    return _dense(tensor)


def _fixed(value, known, name):
    if value != known:
        raise ValueError(f"{{name}}: specialised for {{known!r}}, got {{value!r}}")


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
    #: Text of the tensors that the trace found as constants.
    constants: dict[str, str] = field(default_factory=dict)

    def ref(self, value: Value) -> str:
        """The variable that holds `value`, computing it first where it is a view, a weight or an
        unfused map.
        """
        if value in self.names:
            return self.names[value]
        if value.kind == "state":
            return self.bind(value, _attribute(value.fn))
        if value.kind == "constant":
            self.constants[value.name] = (
                f"torch.tensor({literal(value.attrs['values'])}, dtype=torch.{value.dtype})"
            )
            return self.bind(value, f"self.constant_{value.name}.reshape({list(value.shape)})")
        return self.bind(value, python(value, self.ref))

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
        return self.bind(value, f"torch.empty({_tuple(value.shape)}{dtype})")

    def bind(self, value: Value, text: str) -> str:
        name = value.name
        while name in ("torch", "self", "row", "stop") or name in self.names.values():
            name += "_"
        self.names[value] = name
        self.lines.append(f"{name} = {text}")
        return name

    def returned(self) -> str:
        leaves = iter(self.program.outputs)

        def text(tree: Any) -> str:
            ((kind, body),) = tree.items()
            if kind == "list":
                return "[" + ", ".join(text(t) for t in body) + "]"
            if kind == "tuple":
                return "(" + "".join(text(t) + ", " for t in body) + ")"
            if kind == "dict":
                return "{" + ", ".join(f"{key!r}: {text(t)}" for key, t in body) + "}"
            leaf = next(leaves)
            return self.ref(leaf) if isinstance(leaf, Value) else repr(leaf)

        return text(self.program.structure)


def start(program: Program) -> Body:
    """A body whose inputs are checked and dense."""
    body = Body(program)
    for path, known in program.plain:
        body.lines.append(f"_fixed({path}, {known!r}, {path!r})")
    for value, path in zip(program.inputs, program.paths, strict=True):
        body.dense.add(value)
        body.bind(value, f'_expect({path}, {_tuple(value.shape)}, torch.{value.dtype}, "{value.fn}")')
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
    lines += [
        "class ModelNew(torch.nn.Module):",
        "    def __init__(self, *args, **kwargs):",
        "        super().__init__()",
    ]
    if parameters or buffers:
        lines.append("        generator = torch.Generator().manual_seed(0)")
    for table, is_parameter in ((parameters, True), (buffers, False)):
        for name, (shape, dtype) in table.items():
            initial = f"torch.zeros({_tuple(shape)}, dtype=torch.{dtype})"
            if dtype == "float32":
                scale = f" / {max(1, shape[-1])} ** 0.5" if len(shape) > 1 else " * 0.1 + 1.0"
                initial = f"torch.randn({_tuple(shape)}, generator=generator){scale}"
            lines.append(f'        _declare(self, "{name}", {initial}, {is_parameter})')
    lines += [f"        self.constant_{name} = {text}" for name, text in body.constants.items()]
    signature = ", ".join(["self", *body.program.arguments])
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


def indented(cpp: str) -> str:
    """C++ text indented by its braces, without blank lines inside functions."""
    depth = 0
    result: list[str] = []
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
