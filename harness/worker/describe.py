"""One trusted look at a reference: its interface, its ATen graph, its weaknesses and a rough eager time."""

from __future__ import annotations

import inspect
import statistics
import time
from typing import Any

import torch
from torch.fx import Node

from harness.worker import weakness
from harness.worker.model import GraphNode, ProblemFacts, TensorSpec
from harness.worker.values import Unsupported, dtype_name, pack, skeleton, unpack
from harness.worker.weakness import Subject

CONSTANT_LIMIT = 4096  # elements of a constant whose values are handed on
EAGER_CALLS, EAGER_BUDGET_S = 7, 1.5


class NotTraceable(Exception):
    """The reference has no faithful graph; the text says why."""


def describe_problem(name: str, subject: Subject) -> ProblemFacts:
    """Runs and traces a model in the mode it is in, without gradients."""
    model, structure, tensors, state = subject.model, subject.structure, subject.tensors, subject.state
    inputs = list(unpack(structure, tensors))
    output_structure, outputs = pack(run(model, unpack(structure, [t.clone() for t in tensors])))
    if not outputs or all(t.numel() == 0 for t in outputs):
        raise Unsupported("the reference returns no tensor with elements")
    subject.restore(model)
    flags, _, _ = weakness.glance(subject)
    names = _argument_names(model)
    parameters = {key for key, _ in model.named_parameters()}
    tensor_names = _input_names(structure, names, taken=set(state))
    input_specs = [spec(n, t) for n, t in zip(tensor_names, tensors, strict=True)]
    facts: dict[str, Any] = {
        "name": name,
        "inputs": input_specs,
        "parameters": [spec(key, t) for key, t in state.items() if key in parameters],
        "buffers": [spec(key, t) for key, t in state.items() if key not in parameters],
        "outputs": [spec(f"output{i}", t) for i, t in enumerate(outputs)],
        "flags": flags,
        "eager_ms": _eager_ms(model, inputs),
        "bytes_min": sum(_bytes(t) for t in (*tensors, *state.values(), *outputs)),
        "input_structure": structure,
        "output_structure": skeleton(output_structure),
        "argument_names": names,
        "training": model.training,
    }
    subject.restore(model)
    try:
        traced = Tracing(model, inputs, input_specs).graph()
    except Exception as error:
        text = " ".join(str(error).split())[:400]
        traced = {"nodes": [], "output_refs": [], "trace_error": f"{type(error).__name__}: {text}"}
    return ProblemFacts(**{**facts, **traced})


def run(model: torch.nn.Module, inputs: list[Any]) -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        return model(*inputs)


def spec(name: str, tensor: torch.Tensor) -> TensorSpec:
    """Name, shape, dtype and strides. Raises NotTraceable for a shape that depends on values."""
    if not all(type(size) is int for size in (*tensor.shape, *tensor.stride())):
        raise NotTraceable(f"the shape of {name} depends on values")
    return TensorSpec(name, tuple(tensor.shape), dtype_name(tensor.dtype), tuple(tensor.stride()))


def export_graph(model: torch.nn.Module, inputs: list[Any]) -> Any:
    """The exported program at core ATen level, inference semantics, static shapes."""
    with torch.no_grad():
        exported = torch.export.export(model, tuple(inputs), strict=False)
        return exported.run_decompositions()


class Tracing:
    """Turns an exported program into graph nodes with names that are unique and stable."""

    def __init__(self, model: torch.nn.Module, inputs: list[Any], specs: list[TensorSpec]) -> None:
        self.program = export_graph(model, inputs)
        self.specs = specs
        self.persistent = set(model.state_dict())
        self.names: dict[str, str] = {}
        self.taken = {s.name for s in specs} | self.persistent
        self.constants: list[TensorSpec] = []
        self.constant_values: dict[str, Any] = {}

    def graph(self) -> dict[str, Any]:
        """The traced fields of ProblemFacts; raises NotTraceable."""
        self._placeholders()
        nodes, refs = [], []
        kinds = [str(o.kind).rpartition(".")[2] for o in self.program.graph_signature.output_specs]
        for node in self.program.graph_module.graph.nodes:
            if node.op == "call_function" and "._assert_" not in str(node.target):
                nodes.append(self._node(node))
            elif node.op == "output":
                refs = [
                    self._value(v)
                    for v, kind in zip(node.args[0], kinds, strict=True)
                    if kind == "USER_OUTPUT"
                ]
            elif node.op == "call_function":
                continue  # an assertion about metadata
            elif node.op != "placeholder":
                raise NotTraceable(f"the graph holds a {node.op} node ({node.target})")
        return {
            "nodes": nodes,
            "output_refs": refs,
            "constants": self.constants,
            "constant_values": self.constant_values,
        }

    def _placeholders(self) -> None:
        signature = self.program.graph_signature
        states = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        constants = dict(signature.inputs_to_lifted_tensor_constants)
        tensors = iter(self.specs)
        for node in self.program.graph_module.graph.nodes:
            if node.op != "placeholder":
                continue
            if node.name in states and states[node.name] in self.persistent:
                self.names[node.name] = states[node.name]
            elif node.name in states or node.name in constants:
                self._constant(node, states.get(node.name) or constants[node.name])
            elif isinstance(node.meta.get("val"), torch.Tensor):
                self.names[node.name] = next(tensors).name

    def _constant(self, node: Node, target: str) -> None:
        tensor = self.program.constants[target]
        if tensor.numel() > CONSTANT_LIMIT:
            raise NotTraceable(
                f"the constant {target} has {tensor.numel()} elements and is not in the state dict"
            )
        name = self._unique(target)
        self.names[node.name] = name
        self.constants.append(spec(name, tensor))
        self.constant_values[name] = tensor.tolist()

    def _node(self, node: Node) -> GraphNode:
        name = self.names[node.name] = self._unique(node.name)
        op = "getitem" if getattr(node.target, "__name__", "") == "getitem" else str(node.target)
        value = node.meta.get("val")
        results = value if isinstance(value, list | tuple) else [value]
        outputs = [
            spec(f"{name}.{i}" if len(results) > 1 else name, v)
            for i, v in enumerate(results)
            if _is_tensor(v)
        ]
        kwargs = {key: self._value(v) for key, v in node.kwargs.items()}
        return GraphNode(name, op, [self._value(a) for a in node.args], kwargs, outputs)

    def _value(self, value: Any) -> Any:
        if isinstance(value, Node):
            if value.name not in self.names:
                raise NotTraceable(f"{value.name} is no tensor")
            return {"ref": self.names[value.name]}
        if isinstance(value, list | tuple):
            return [self._value(v) for v in value]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        for kind, name in ((torch.dtype, "dtype"), (torch.device, "device"), (torch.layout, "layout")):
            if isinstance(value, kind):
                return {name: str(value).removeprefix("torch.")}
        if isinstance(value, torch.memory_format):
            return {"memory_format": str(value).removeprefix("torch.")}
        raise NotTraceable(f"an argument of type {type(value).__name__}")

    def _unique(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def _eager_ms(model: torch.nn.Module, inputs: list[Any]) -> float:
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < EAGER_CALLS and (len(times) < 2 or time.perf_counter() - start < EAGER_BUDGET_S):
        before = time.perf_counter()
        run(model, inputs)
        times.append(1e3 * (time.perf_counter() - before))
    return statistics.median(times)


def _argument_names(model: torch.nn.Module) -> list[str]:
    return [n for n, p in inspect.signature(model.forward).parameters.items() if p.kind is not p.VAR_KEYWORD]


def _input_names(structure: Any, names: list[str], taken: set[str]) -> list[str]:
    """One name for each tensor: the argument's own, with an index where it holds several, unlike any in
    `taken`.
    """
    found: list[str] = []
    for i, argument in enumerate(structure["list"]):
        base = names[i] if i < len(names) else f"input{i}"
        count = _count_tensors(argument)
        for name in [base] if "t" in argument else [f"{base}_{j}" for j in range(count)]:
            unique = name
            while unique in taken or unique in found:
                unique += "_"
            found.append(unique)
    return found


def _count_tensors(structure: Any) -> int:
    ((kind, body),) = structure.items()
    if kind in ("list", "tuple"):
        return sum(_count_tensors(s) for s in body)
    if kind == "dict":
        return sum(_count_tensors(s) for _, s in body)
    return int(kind == "t")


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
