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

from harness.worker import sandbox
from harness.worker.child import Server, float_state, load_module, seeded
from harness.worker.compare import parse_tolerance
from harness.worker.values import Unsupported, describe_layout, dtype_name, pack, unpack
from harness.worker.wire import Channel

KNOWN_META = {"tolerance", "ops", "notes"}
UNSUPPORTED_META = {"shapes": "several shape sets", "backward": "comparing gradients"}


class InvalidProblem(Exception):
    """The problem file breaks the contract; the text is one line for a person."""


class ReferenceServer(Server):
    """Serves the judge with everything it must know about the reference."""

    def __init__(self, channel: Channel, path: Path, device: str = "cpu") -> None:
        super().__init__(channel, path, device)
        self.model: torch.nn.Module
        self.module: Any = None
        self.make: Callable[[], torch.nn.Module]
        self.drawn: list[Any] = []
        self.pending: list[torch.Tensor] = []
        self.initial: dict[str, torch.Tensor] = {}
        self.double: torch.nn.Module | None = None
        self._nothing: Any = None
        self.handlers |= {
            "enter": self.enter,
            "load": self.load,
            "generate": self.generate,
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
            sandbox.limit_resources({}, message["memory"], None)
        return {"ok": True}

    def load(self, message: dict[str, Any]) -> dict[str, Any]:
        """Imports the problem and constructs its Model under the given seed."""
        torch.set_num_threads(message["threads"])
        self.module = load_problem_module(message["source"], self.path)
        init = list(self.module.get_init_inputs())
        structure, tensors = pack(init)
        if tensors:
            raise InvalidProblem("get_init_inputs() returns tensors: that is not supported yet")
        self.make = lambda: self._placed(seeded(lambda: self.module.Model(*init), message["seed"]))
        model = self.make()
        self.use(model)
        state = float_state(model)
        return {
            "init": structure,
            "state": [[name, *_floating(t)] for name, t in state.items()],
            "state_layout": describe_layout(list(state.values()), contiguous=True),
            "tolerance": self.module.__dict__.get("META", {}).get("tolerance", {}),
        }

    def _placed(self, model: Any) -> Any:
        return model.to(self.device) if isinstance(model, torch.nn.Module) else model

    def use(self, model: Any) -> None:
        if not isinstance(model, torch.nn.Module):
            raise InvalidProblem("Model is not a torch.nn.Module")
        self.model = model
        self.initial = {name: t.detach().clone() for name, t in float_state(model).items()}
        self.forwards = {"eager": model, "noop": self.noop}

    def generate(self, message: dict[str, Any]) -> dict[str, Any]:
        """Draws one set of inputs under a seed and says what it looks like."""
        inputs = draw_inputs(self.module, message["seed"], self.device)
        if not isinstance(inputs, list | tuple):
            raise InvalidProblem("get_inputs() must return a list")
        self.drawn = list(inputs)
        structure, tensors = pack(self.drawn)
        self.pending = [t.to(self.device) for t in tensors]
        if not self.pending:
            raise InvalidProblem("get_inputs() returns no tensor")
        if all(t.numel() == 0 for t in self.pending):
            raise InvalidProblem("get_inputs() returns only empty tensors")
        return {"structure": structure, "layout": describe_layout(self.pending, contiguous=False)}

    def noop(self, *_: Any) -> Any:
        """Does nothing and returns what eager returned: what a block of calls costs besides the calls."""
        if self._nothing is None:
            structure, tensors = pack(self.model(*self.arguments[0]))
            self._nothing = unpack(structure, [t.clone() for t in tensors])
        return self._nothing

    def store(self, message: dict[str, Any]) -> dict[str, Any]:
        """Writes the inputs drawn last into one slot."""
        self.input_regions[message["slot"]].write(message["layout"], self.pending)
        return {"ok": True}

    def set_state(self, message: dict[str, Any]) -> dict[str, Any]:
        """Sets weights to their initial values (seed None) or perturbed ones, and publishes them."""
        generator = torch.Generator(self.device)
        seed = message["seed"]
        if seed is not None:
            generator.manual_seed(seed)
        state = float_state(self.model)
        parameters = {name for name, _ in self.model.named_parameters()}
        with torch.no_grad():
            for name, tensor in state.items():
                value = self.initial[name]
                if seed is not None:
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
            _, results = pack(self.double(*unpack(structure, wide)))
        for entry, result in zip(self.double_layout, results, strict=True):
            if list(result.shape) != entry["shape"] or dtype_name(result.dtype) != entry["dtype"]:
                raise Unsupported("the reference does not keep double precision")
        self.double_output.write(self.double_layout, [r.contiguous() for r in results])
        return {"ok": True}

    def compile(self, message: dict[str, Any]) -> dict[str, Any]:
        """Adds the torch.compile'd reference under the name `compile` and runs it once."""
        compiled = torch.compile(self.model)
        torch.manual_seed(message["seed"])
        with torch.no_grad():
            compiled(*self.arguments[0])
        self.forwards["compile"] = compiled
        return {"ok": True}

    def flops(self) -> dict[str, Any]:
        """Operations of the products, convolutions and attentions in one call, as torch counts them."""
        from torch.utils.flop_counter import FlopCounterMode

        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            self.model(*self.arguments[0])
        return {"flops": counter.get_total_flops()}

    def describe(self, message: dict[str, Any]) -> dict[str, Any]:
        """The problem's facts, for people and generators."""
        from harness.worker.describe import describe_problem

        self._open(message)
        facts = describe_problem(message["name"], self._subject())
        meta = self.module.__dict__.get("META", {})
        return {"facts": replace(facts, ops=meta.get("ops", []), notes=meta.get("notes", "")).to_json()}

    def compiler_source(self, message: dict[str, Any]) -> dict[str, Any]:
        """A candidate made of what TorchInductor generates."""
        from harness.worker.inductor import candidate_source

        return {"candidate": candidate_source(*self._open(message))}

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

        tolerance = parse_tolerance(self.module.__dict__.get("META", {}).get("tolerance", {}))
        return Subject(self.model, self.make, self._draw, tolerance)

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
    meta = module.__dict__.get("META", {})
    if not isinstance(meta, dict):
        raise InvalidProblem("META is not a dictionary")
    for key, what in UNSUPPORTED_META.items():
        if meta.get(key):
            raise InvalidProblem(f"META[{key!r}]: {what} is not supported yet")
    unknown = sorted(set(meta) - KNOWN_META - set(UNSUPPORTED_META))
    if unknown:
        raise InvalidProblem(f"META has unknown keys: {', '.join(map(str, unknown))}")
    if not isinstance(meta.get("notes", ""), str):
        raise InvalidProblem("META['notes'] is not a text")
    ops = meta.get("ops", [])
    if not isinstance(ops, list) or not all(isinstance(op, str) for op in ops):
        raise InvalidProblem("META['ops'] is not a list of names")
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


def _floating(tensor: torch.Tensor) -> tuple[bool, list[int]]:
    return tensor.is_floating_point() or tensor.is_complex(), list(tensor.shape)
