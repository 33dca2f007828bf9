"""Does a problem's text do what the captured module did? Asked in a process that has nothing of the
program.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from harness.errors import ProblemError
from harness.worker.child import float_state, load_module
from harness.worker.trial import all_finite
from harness.worker.values import Unsupported, describe_layout, pack, skeleton, unpack

LIMIT_S = 600.0
_HINT = "what it needs has to be at the top level of the program's files and of its constructor's arguments"


@dataclass(frozen=True)
class Expected:
    """The captured module's weights, its inputs, and what it returned under the seed."""

    state: dict[str, torch.Tensor]
    inputs: list[Any]
    output_structure: Any
    outputs: list[torch.Tensor]
    seed: int


def verify(text: str, expected: Expected) -> None:
    """Loads the text in a new process. Raises ProblemError with what differs."""
    structure, inputs = pack(expected.inputs)
    with tempfile.TemporaryDirectory(prefix="kernelevolve-capture-") as folder:
        (Path(folder) / "problem.py").write_text(text, encoding="utf-8")
        torch.save(
            {**asdict(expected), "inputs": inputs, "structure": structure}, Path(folder) / "expected.pt"
        )
        root = str(Path(__file__).resolve().parents[2])
        command = [sys.executable, "-m", "harness.problem_capture.verify", folder]
        environment = {**os.environ, "PYTHONPATH": root}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    try:
        problem = json.loads(done.stdout.splitlines()[-1])["problem"]
    except (IndexError, ValueError, KeyError):
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        problem = f"the process that loads it died: {last}"
    if problem:
        raise ProblemError(f"the captured problem is not what the module is: {problem}", _HINT)


def _differences(text: str, expected: dict[str, Any]) -> str:
    """What differs, in one line, or an empty string."""
    try:
        module = load_module("kernelevolve_problem", text, Path("loaded.py"))
        model = module.Model(*module.get_init_inputs())
    except Exception as error:
        return f"it cannot be loaded: {type(error).__name__}: {error}"
    try:
        model.load_state_dict(expected["state"], strict=True)
    except RuntimeError as error:
        return f"its weights differ: {' '.join(str(error).split())[:300]}"
    arguments = unpack(expected["structure"], expected["inputs"])
    state = {key: t.clone() for key, t in float_state(model).items()}
    try:
        structure, outputs = _run(model, arguments, expected["seed"])
    except Exception as error:
        return f"forward fails: {type(error).__name__}: {error}"
    if skeleton(structure) != skeleton(expected["output_structure"]):
        return "it returns another structure"
    for i, (mine, theirs) in enumerate(zip(outputs, expected["outputs"], strict=True)):
        try:
            torch.testing.assert_close(mine, theirs, equal_nan=True)
        except AssertionError as error:
            return f"output {i} differs: {' '.join(str(error).split())[:300]}"
    model.load_state_dict(state, strict=False)
    return _input_differences(module, model, expected)


def _input_differences(module: Any, model: torch.nn.Module, expected: dict[str, Any]) -> str:
    try:
        structure, drawn = pack(module.get_inputs())
        layouts = (
            describe_layout(drawn, contiguous=False),
            describe_layout(expected["inputs"], contiguous=False),
        )
    except Exception as error:
        return f"get_inputs() fails: {type(error).__name__}: {error}"
    if structure != expected["structure"]:
        return "get_inputs() returns another structure"
    for i, (mine, theirs) in enumerate(zip(*layouts, strict=True)):
        for key in ("dtype", "shape", "stride"):
            if mine[key] != theirs[key]:
                return f"get_inputs() draws tensor {i} with {key} {mine[key]}, not {theirs[key]}"
    try:
        _, outputs = _run(model, unpack(structure, drawn), expected["seed"])
    except Exception as error:
        return f"forward fails for what get_inputs() draws: {type(error).__name__}: {error}"
    if all_finite(expected["outputs"]) and not all_finite(outputs):
        return "forward returns NaN or infinity for what get_inputs() draws; say how inputs are drawn"
    return ""


def _run(model: Any, arguments: list[Any], seed: int) -> tuple[Any, list[torch.Tensor]]:
    torch.manual_seed(seed)
    with torch.no_grad():
        return pack(model(*arguments))


def main(folder: str) -> None:
    expected = torch.load(Path(folder) / "expected.pt", weights_only=True)
    try:
        problem = _differences((Path(folder) / "problem.py").read_text(encoding="utf-8"), expected)
    except Unsupported as error:
        problem = str(error)
    sys.stdout.write("\n" + json.dumps({"problem": problem}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
