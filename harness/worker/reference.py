"""The reference child: loads the problem, makes inputs, perturbs weights and runs the reference. Trusted
code.
"""

from __future__ import annotations

import copy
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.worker import environment
from harness.worker.child import Server, float_state, load_module, seeded, set_precision
from harness.worker.compare import parse_tolerance
from harness.worker.evidence.calls import CallLog
from harness.worker.gradients import differentiable_outputs, gradient_targets
from harness.worker.jail import sandbox
from harness.worker.meta import InvalidProblem, Meta, parse_meta, parse_shape
from harness.worker.values import Unsupported, describe_layout, dtype_name, pack, unpack
from harness.worker.wire import Channel

MEMORY_SHARE = 0.8  # of what is left of the machine's memory, for a reference


class ReferenceServer(Server):
    """Serves the judge with everything it must know about the reference."""

    def __init__(self, channel: Channel, path: Path, device: str = "cpu") -> None:
        super().__init__(channel, path, device)
        self.module: Any = None
        self.meta = Meta()
        self.make: Callable[[], torch.nn.Module]
        self.drawn: list[Any] = []
        self.cotangents: list[torch.Tensor] = []
        self.pending: list[torch.Tensor] = []
        self.initial: dict[str, torch.Tensor] = {}
        self.double: torch.nn.Module | None = None
        self._nothing: Any = None
        self.handlers |= {
            "enter": self.enter,
            "load": self.load,
            "generate": self.generate,
            "renew": lambda _: self.renew(),
            "glance": lambda _: self.glance(),
            "store": self.store,
            "set_state": self.set_state,
            "save_state": lambda _: self.publish(),
            "map_double": self.map_double,
            "call_double": self.call_double,
            "compile": self.compile,
            "flops": lambda _: self.flops(),
            "describe": self.describe,
            "compiler_source": self.compiler_source,
            "check": self.check,
        }

    def enter(self, message: dict[str, Any]) -> dict[str, Any]:
        """Moves into a folder of its own; what torch.compile builds goes to a cache that only references
        use.
        """
        folder = Path(message["folder"])
        os.chdir(folder)
        self.path = folder / "problem.py"
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["TMPDIR"] = message["cache"]
        tempfile.tempdir = None  # torch keeps its precompiled headers among temporary files
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        if self.device == "cpu":
            left = environment.available_memory()
            most = message["memory"] if left is None else int(MEMORY_SHARE * left)
            sandbox.limit_resources({}, min(message["memory"], most), None)
        return {"ok": True}

    def load(self, message: dict[str, Any]) -> dict[str, Any]:
        """Imports the problem, sets the sizes of shape number `shape` and constructs Model under the given
        seed.
        """
        torch.set_num_threads(message["threads"])
        self.module = load_problem_module(message["source"], self.path)
        self.meta = parse_meta(self.module.__dict__)
        precision = message.get("precision", "strict")
        tf32 = (self.meta.precision if precision == "as-declared" else precision) == "tf32"
        set_precision(tf32=tf32)
        shapes, sizes = self.meta.shapes, message.get("sizes") or {}
        if sizes:  # instead of those that META names
            shapes = [parse_shape("the request", {"name": "tiny", "globals": sizes}, self.module.__dict__)]
        self.module.__dict__.update(shapes[message.get("shape", 0)].globals)
        init = list(self.module.get_init_inputs())
        structure, tensors = pack(init)
        if tensors:
            raise InvalidProblem("get_init_inputs() returns tensors: that is not supported yet")
        self.make = lambda: self._placed(seeded(lambda: self.module.Model(*init), message["seed"]))
        self.gradients = None
        self.renew()
        labels = self._find_gradients(message["seed"]) if self.meta.backward else []
        state = float_state(self.model)
        return {
            "init": structure,
            "state": [[name, *_floating(t)] for name, t in state.items()],
            "state_layout": describe_layout(list(state.values()), contiguous=True),
            "tolerance": self.meta.tolerance,
            "shapes": [[shape.name, shape.weight] for shape in shapes],
            "tf32": tf32,
            "gradients": self.gradients,
            "labels": labels,
        }

    def _find_gradients(self, seed: int) -> list[str]:
        """Which gradients there are: from now on, calls include them. Returns a name for each result."""
        names = gradient_targets(self.model)
        inputs = self._draw(seed)
        outputs, differentiable, structure = differentiable_outputs(self.model, inputs)
        if not differentiable:
            raise InvalidProblem("META['backward']: no output has a gradient")
        self.gradients = {"names": names, "outputs": list(differentiable), "structure": structure}
        self.cotangents = [outputs[i].detach() for i in differentiable]
        self.renew()
        leaves = [i for i, t in enumerate(pack(inputs)[1]) if t.is_floating_point()]
        return [
            *(f"output {i}" if len(outputs) > 1 else "output" for i in range(len(outputs))),
            *(f"gradient of input {i}" for i in leaves),
            *(f"gradient of {name}" for name in names),
        ]

    def renew(self) -> dict[str, Any]:
        """Another instance, as it was constructed."""
        self.use(self.make())
        self.double = None
        return {"ok": True}

    def _placed(self, model: Any) -> Any:
        return model.to(self.device) if isinstance(model, torch.nn.Module) else model

    def use(self, model: Any) -> None:
        if not isinstance(model, torch.nn.Module):
            raise InvalidProblem("Model is not a torch.nn.Module")
        self.model = model
        self._nothing = None
        self.initial = {name: t.detach().clone() for name, t in float_state(model).items()}
        self.forwards = {"eager": self.called(model), "noop": self.noop}

    def generate(self, message: dict[str, Any]) -> dict[str, Any]:
        """Draws one set of inputs under a seed and says what it looks like."""
        inputs = draw_inputs(self.module, message["seed"], self.device)
        if not isinstance(inputs, list | tuple):
            raise InvalidProblem("get_inputs() must return a list")
        structure, tensors = pack(list(inputs))
        self.drawn = list(unpack(structure, [t.to(self.device) for t in tensors]))
        cotangents = [torch.randn_like(t) for t in self.cotangents]
        structure, self.pending = pack([*self.drawn, cotangents] if self.gradients else self.drawn)
        if not self.pending:
            raise InvalidProblem("get_inputs() returns no tensor")
        if all(t.numel() == 0 for t in self.pending):
            raise InvalidProblem("get_inputs() returns only empty tensors")
        return {"structure": structure, "layout": describe_layout(self.pending, contiguous=False)}

    def noop(self, *_: Any) -> Any:
        """Does nothing and returns what eager returned: what a block of calls costs besides the calls."""
        if self._nothing is None:
            structure, tensors = pack(self.forwards["eager"](*self.arguments[0]))
            self._nothing = unpack(structure, [t.clone() for t in tensors])
        return self._nothing

    def store(self, message: dict[str, Any]) -> dict[str, Any]:
        """Writes the inputs drawn last into one slot."""
        self.input_regions[message["slot"]].write(message["layout"], self.pending)
        return {"ok": True}

    def set_state(self, message: dict[str, Any]) -> dict[str, Any]:
        """Sets weights to their initial values (seed None) or perturbed ones, and publishes them.

        `constants` names the only ones to be perturbed, and of these only what starts as one value.
        """
        generator = torch.Generator(self.device)
        seed = message["seed"]
        if seed is not None:
            generator.manual_seed(seed)
        state = float_state(self.model)
        parameters = {name for name, _ in self.model.named_parameters()}
        with torch.no_grad():
            for name, tensor in state.items():
                value, only = self.initial[name], message.get("constants")
                if seed is not None and (only is None or (name in only and _is_constant(value))):
                    value = perturbed(value, generator, parameter=name in parameters)
                tensor.copy_(value)
        self.double = None
        return self.publish()

    def publish(self) -> dict[str, Any]:
        """Shows the judge the state as it is now."""
        if self.state is not None:
            self.state.write(self.state_layout, list(float_state(self.model).values()))
        return {"ok": True}

    def map_double(self, message: dict[str, Any]) -> dict[str, Any]:
        (self.double_output,) = self._regions(message)
        self.double_layout = message["layout"]
        return {"ok": True}

    def call_double(self, message: dict[str, Any]) -> dict[str, Any]:
        """Runs the reference in double precision on one slot."""
        if self.double is None:
            self.double = copy.deepcopy(self.model).double()
        _, tensors = pack(self.arguments[message["slot"]])
        wide = [t.to(torch.float64, copy=True) if t.is_floating_point() else t.clone() for t in tensors]
        structure, _ = pack(self.arguments[message["slot"]])
        torch.manual_seed(message["seed"])
        with torch.no_grad():
            _, results = pack(self.called(self.double)(*unpack(structure, wide)))
        for entry, result in zip(self.double_layout, results, strict=True):
            if list(result.shape) != entry["shape"] or dtype_name(result.dtype) != entry["dtype"]:
                raise Unsupported("the reference does not keep double precision")
        self.double_output.write(self.double_layout, [r.contiguous() for r in results])
        return {"ok": True}

    def compile(self, message: dict[str, Any]) -> dict[str, Any]:
        """Adds the torch.compile'd reference under the name `compile` and runs it once."""
        compiled = self.called(self.model, torch.compile(self.model))
        torch.manual_seed(message["seed"])
        with torch.no_grad():
            compiled(*self.arguments[0])
        self.forwards["compile"] = compiled
        return {"ok": True}

    def flops(self) -> dict[str, Any]:
        """Operations of the products, convolutions and attentions in one call."""
        with torch.no_grad(), CallLog() as log:
            self.model(*self.arguments[0])
        return {"flops": log.operations}

    def describe(self, message: dict[str, Any]) -> dict[str, Any]:
        """The problem's facts, for people and generators."""
        from harness.worker.describe import describe_problem

        self._open(message)
        facts = describe_problem(message["name"], self._subject())
        if self.meta.backward:
            why = "gradients are asked for, and a graph of forward holds none"
            facts = replace(facts, nodes=[], output_refs=[], trace_error=why)
        return {"facts": replace(facts, ops=list(self.meta.ops), notes=self.meta.notes).to_json()}

    def compiler_source(self, message: dict[str, Any]) -> dict[str, Any]:
        """A candidate made of what TorchInductor generates."""
        from harness.worker.inductor import candidate_source

        model, inputs = self._open(message)
        if self.meta.backward:
            raise Unsupported("gradients are asked for: the compiler's code is for forward alone")
        return {"candidate": candidate_source(model, inputs)}

    def check(self, message: dict[str, Any]) -> dict[str, Any]:
        """What makes the problem weak, with weights as the judge perturbs them."""
        from harness.worker.weakness import check

        self._open(message)
        self.set_state({"seed": 1})
        subject = self._subject()
        if subject.takes(subject.tensors) is None:
            self.set_state({"seed": None})
            subject = self._subject()
        return {"findings": check(subject)}

    def _subject(self) -> Any:
        from harness.worker.weakness import Subject

        return Subject(self.model, self.make, self._draw, parse_tolerance(self.meta.tolerance))

    def glance(self) -> dict[str, Any]:
        """What shows in a few calls; whether calls agree; and whether first calls of several instances do."""
        from harness.worker.weakness import glance

        findings, repeats, restarts = glance(self._subject())
        return {"findings": findings, "repeats": repeats, "restarts": restarts}

    def _open(self, message: dict[str, Any]) -> tuple[torch.nn.Module, list[Any]]:
        self.load({**message, "seed": 0})
        return self.model, self._draw(1)

    def _draw(self, seed: int) -> list[Any]:
        self.generate({"seed": seed})
        return list(self.drawn)


def draw_inputs(module: Any, seed: int, device: str) -> Any:
    """On the device, where that works: gigabytes of random numbers take seconds on a CPU."""
    if device != "cpu":
        try:
            with torch.device(device):
                return seeded(module.get_inputs, seed)
        except Exception:  # it mixes in tensors of its own that are on the CPU: there, all of them are
            pass
    return seeded(module.get_inputs, seed)


def load_problem_module(source: str, path: Path) -> Any:
    """Imports a problem and checks its contract; raises InvalidProblem."""
    try:
        module = load_module("kernelevolve_problem", source, path)
    except SyntaxError as error:
        raise InvalidProblem(f"syntax error in line {error.lineno}: {error.msg}") from error
    for name in ("Model", "get_inputs", "get_init_inputs"):
        if not callable(module.__dict__.get(name)):
            raise InvalidProblem(f"the problem defines no {name}")
    parse_meta(module.__dict__)
    return module


def perturbed(value: torch.Tensor, generator: torch.Generator, *, parameter: bool) -> torch.Tensor:
    """The tensor away from its default, with its sign kept where all of it has one sign.

    Integers stay. Buffers change only where all elements are equal (running statistics at their start): a
    mask or a table of positions is part of the problem's structure.
    """
    if not value.is_floating_point() or value.numel() == 0:
        return value
    if not parameter and not bool((value == value.flatten()[0]).all()):
        return value
    wide = value.double()
    noise = torch.randn(value.shape, dtype=torch.float64, generator=generator, device=value.device)
    scale = float(wide.square().mean().sqrt())
    if scale == 0.0 or not math.isfinite(scale):
        changed = 0.1 * noise
    elif bool((wide > 0).all()) or bool((wide < 0).all()):
        changed = wide * torch.exp(0.2 * noise)
    else:
        changed = wide + 0.2 * scale * noise
    return changed.to(value.dtype)


def _is_constant(value: torch.Tensor) -> bool:
    return value.numel() > 0 and bool((value == value.flatten()[0]).all())


def _floating(tensor: torch.Tensor) -> tuple[bool, list[int]]:
    return tensor.is_floating_point() or tensor.is_complex(), list(tensor.shape)
