"""The candidate child: goes to jail, imports the candidate and serves its `forward`. Nothing here is
trusted.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from harness.worker.child import MissingModelNew, Server, float_state, load_module, seeded, set_precision
from harness.worker.evidence.experiments import Experiments
from harness.worker.evidence.integrity import Watch
from harness.worker.interpreter import install as interpreter
from harness.worker.jail import sandbox
from harness.worker.jail.places import Places
from harness.worker.loading import load_again
from harness.worker.profiling.cute import cute_kernels
from harness.worker.profiling.light import profile_calls
from harness.worker.profiling.static import KernelFigures
from harness.worker.values import unpack
from harness.worker.wire import Channel


class CandidateServer(Server):
    """Serves one candidate."""

    def __init__(self, channel: Channel, report: sandbox.Report, device: str) -> None:
        super().__init__(channel, Path(), device)
        self.report = report
        self.module: Any = None
        self.make: Any = None
        self.checked: Any = None  # what a call is wrapped in
        self.figures = KernelFigures(lambda: self.path.parent)
        self.handlers |= self.figures.handlers
        self.places = Places(Path(), ())
        self.watch: Watch | None = None
        self.tried: Experiments | None = None
        self.handlers |= {
            "jail": self.jail,
            "build": self.build,
            "renew": lambda _: self.renew(),
            "configurations": lambda _: interpreter.FINDINGS.configurations(),
            "load_state": self.load_state,
            "save_state": self.save_state,
            "kernels": lambda _: self.figures.collect(cute_kernels()),
            "profile": self.profile,
            "integrity": lambda _: self.integrity(),
            "executed": self.executed,
            "experiments": self.experiments,
            "seen": lambda _: self.tried.seen if self.tried else {},
        }

    def jail(self, message: dict[str, Any]) -> dict[str, Any]:
        """Enters the jail and answers with what it is made of; no candidate code has run yet."""
        scratch = Path(message["scratch"])
        self.path = scratch / "candidate.py"
        environment = sandbox.environment(scratch, message["threads"]) | message["environment"]
        os.environ.clear()
        os.environ.update(environment)
        sandbox.private_temporary(self.report, scratch, message["readable"])
        self.places = Places(scratch, message["readable"])
        os.chdir(scratch)
        sys.dont_write_bytecode = True  # compiled modules in its folders are none of the interpreter's, then
        tempfile.tempdir = None  # found out anew: it was another one for the zygote
        torch.set_num_threads(message["threads"])
        sandbox.restrict_files(self.report, scratch, message["readable"], message["device"])
        sandbox.drop_privileges(self.report)
        # A device's driver reserves address space by the terabyte: there, that is no measure of memory.
        memory = message["memory"] if self.device == "cpu" else None
        sandbox.limit_resources(self.report, memory, message["processes"], message["cpu_s"])
        sandbox.filter_calls(self.report)
        return {"report": self.report}

    def explain(self, error: BaseException) -> dict[str, Any]:
        said = super().explain(error)
        return {**said, "text": said["text"] + self.places.advice(error)}

    def build(self, message: dict[str, Any]) -> dict[str, Any]:
        """Imports the candidate once, constructs ModelNew under the reference's seed, lists its state."""
        if self.module is None:
            if os.environ.get("TRITON_INTERPRET") == "1":
                interpreter.install()
            set_precision(tf32=message["tf32"])
            self.watch = Watch(self.places)
            self.module = load_module("candidate", message["source"], self.path)
        make = self.module.__dict__.get("ModelNew")
        if make is None:
            raise MissingModelNew("the candidate defines no class ModelNew")
        self.checked = interpreter.FINDINGS.checked if message["interpreted"] else lambda forward: forward
        self.make = lambda: seeded(lambda: make(*unpack(message["init"], [])), message["seed"])
        self.gradients = None
        self.renew()
        state = float_state(self.model) if isinstance(self.model, torch.nn.Module) else {}
        return {
            "state": [
                [name, t.is_floating_point() or t.is_complex(), list(t.shape)] for name, t in state.items()
            ]
        }

    def renew(self) -> dict[str, Any]:
        """Another instance, as it was constructed."""
        model = self.make()
        if not callable(model):
            raise MissingModelNew("ModelNew is not callable")
        self.use(model.to(self.device) if isinstance(model, torch.nn.Module) else model)
        return {"ok": True}

    def use(self, model: Any) -> None:
        self.model = model
        self.forwards = {"candidate": self.checked(self.called(model))}

    def load_state(self, message: dict[str, Any]) -> dict[str, Any]:
        """Copies weights from the state region: `names` maps own names to numbers of layout entries."""
        assert self.state is not None
        state = float_state(self.model)
        views = self.state.views(self.state_layout)
        with torch.no_grad():
            for name, index in message["names"]:
                state[name].copy_(views[index])
        return {"failed": load_again(self.model)}

    def save_state(self, message: dict[str, Any]) -> dict[str, Any]:
        """The opposite: what forward has made of it. State of another shape than before is left out."""
        assert self.state is not None
        state = float_state(self.model)
        for name, index in message["names"]:
            view = self.state.view(self.state_layout[index])
            if name in state and state[name].shape == view.shape:
                view.copy_(state[name].detach())
        return {"ok": True}

    def profile(self, message: dict[str, Any]) -> dict[str, Any]:
        """What the device does during calls on some slots."""
        arguments = [self.arguments[slot] for slot in message["slots"]]
        return {"rows": profile_calls(self.model, arguments, self.synchronize)}

    def integrity(self) -> dict[str, Any]:
        """What has changed in this process since before the candidate was imported."""
        assert self.watch is not None
        return {
            "changes": self.watch.changes(),
            "threads": self.watch.running_threads(),
        }

    def executed(self, message: dict[str, Any]) -> dict[str, Any]:
        """A page of the texts that were compiled since then."""
        assert self.watch is not None
        return {"text": self.watch.executed(message["start"])}

    def experiments(self, message: dict[str, Any]) -> dict[str, Any]:
        """Makes the forwards of `experiments.Experiments` callable."""
        self.tried = Experiments(
            self.forwards["candidate"],
            self.places,
            self.results[0],
            all_threads=message["all_threads"],
        )
        self.forwards |= self.tried.forwards
        return {"ok": True}
