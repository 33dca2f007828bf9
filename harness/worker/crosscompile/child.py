"""The two children of a cross-compilation: one tells what the problem's interface is, the other builds and
follows the candidate, in the same jail as always. The device is not here for either of them.
"""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from typing import Any

import torch

from harness.worker.candidate import CandidateServer
from harness.worker.child import MissingModelNew, load_module, seeded
from harness.worker.crosscompile import cuda as crosscompile_cuda
from harness.worker.crosscompile import cute as crosscompile_cute
from harness.worker.crosscompile import triton_driver as crosscompile_triton
from harness.worker.crosscompile.device import AbsentDevice, not_followed
from harness.worker.meta import InvalidProblem
from harness.worker.reference import ReferenceServer, load_problem_module
from harness.worker.values import DTYPES, Unsupported, describe_layout, pack, skeleton, unpack


class InterfaceServer(ReferenceServer):
    """Says what goes into a problem's forward and what comes out."""

    def __init__(self, channel: Any, path: Path) -> None:
        super().__init__(channel, path)
        self.handlers["interface"] = self.interface

    def interface(self, message: dict[str, Any]) -> dict[str, Any]:
        """Inputs are drawn without contents where get_inputs() allows it: those made for a GPU are large."""
        torch.set_num_threads(message["threads"])
        module = self.module = load_problem_module(message["source"], self.path)
        init = list(module.get_init_inputs())
        init_structure, tensors = pack(init)
        if tensors:
            raise InvalidProblem("get_init_inputs() returns tensors: that is not supported yet")
        device = AbsentDevice(message["target"])
        try:
            with device, torch.device("cuda"):
                inputs = module.get_inputs()
            if device.assumed:
                raise ValueError("contents of inputs matter")
        except Exception:  # it needs contents: then they are drawn
            inputs = seeded(module.get_inputs, 0)
        if not isinstance(inputs, list | tuple):
            raise InvalidProblem("get_inputs() must return a list")
        structure, drawn = pack(list(inputs))
        layout = describe_layout(drawn, contiguous=False)
        arguments = unpack(structure, absent_tensors(layout))
        answer = {"init": init_structure, "structure": structure, "layout": layout}
        try:
            with device, torch.no_grad():
                model = module.Model(*init).to("cuda")
                outputs = interface_of(model(*arguments))
        except Exception:  # nothing to compare with: an operator without a shape function, for example
            return answer
        return {**answer, **outputs} if not device.assumed else answer


class CompileServer(CandidateServer):
    """Follows one candidate."""

    def __init__(self, channel: Any, report: dict[str, str]) -> None:
        super().__init__(channel, report, "cpu")
        self.handlers["compile"] = self.compile

    def compile(self, message: dict[str, Any]) -> dict[str, Any]:
        """Imports the candidate, constructs ModelNew and calls it once on tensors without contents."""
        target = message["target"]
        launches = crosscompile_triton.Launches(time.monotonic() + message["budget_s"])
        device = AbsentDevice(target)
        device.path = str(self.path)
        missing = crosscompile_cuda.install(target, self.path.parent)
        if target["triton"] is not None:
            crosscompile_triton.install(target, launches)
        arguments = unpack(message["structure"], absent_tensors(message["layout"]))
        stopped, outputs = "", {}
        try:
            crosscompile_cute.install(target, message["source"], self.path.parent)
            with device, torch.no_grad():
                module = load_module("candidate", message["source"], self.path)
                make = module.__dict__.get("ModelNew")
                if make is None:
                    raise MissingModelNew("the candidate defines no class ModelNew")
                model = seeded(lambda: make(*unpack(message["init"], [])), message["seed"])
                if isinstance(model, torch.nn.Module):
                    model = model.to("cuda")
                outputs = interface_of(model(*arguments), message["like"])
        except Exception as error:
            if not not_followed(error, str(self.path)) and not isinstance(
                error, crosscompile_cuda.NotFollowed
            ):
                raise
            stopped = _where(error, str(self.path))
        self.figures.grids = launches.grids | crosscompile_cute.grids()
        return {
            **self.figures.collect([*crosscompile_cuda.extensions(), *crosscompile_cute.kernels()]),
            "assumed": device.assumed,
            "stopped": stopped,
            "failed": launches.failed,
            "left_out": launches.left_out,
            "missing": missing,
            **outputs,
        }


def absent_tensors(layout: list[dict[str, Any]]) -> list[torch.Tensor]:
    """Tensors without contents, as a layout describes them."""
    return [
        torch.empty_strided(e["shape"], e["stride"], dtype=DTYPES[e["dtype"]], device="meta") for e in layout
    ]


def interface_of(result: Any, like: Any = None) -> dict[str, Any]:
    """Structure, shapes and dtypes of what a forward returns; `like`: see `pack`."""
    try:
        structure, tensors = pack(result, like)
    except Unsupported as error:
        return {"mismatch": str(error)}
    kinds = [[str(t.dtype).removeprefix("torch."), list(t.shape)] for t in tensors]
    return {"output_structure": skeleton(structure), "output_kinds": kinds}


def _where(error: BaseException, path: str) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    line = f"line {frames[-1].lineno}: " if frames else ""
    return line + " ".join(str(error).split())[:200]
