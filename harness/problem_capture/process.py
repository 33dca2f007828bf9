"""Captures a problem in a process of its own: what is captured is a user's program, and it is run.

`capture_apart` asks; `python -m harness.problem_capture.process FD` answers, with the working folder first on
the import path, as the user's own interpreter has it.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, ProblemError


@dataclass(frozen=True)
class Job:
    """What to capture: `target` ("package.module:Name") or `script`, a file that sets `module` and
    `inputs`.

    `init` and `inputs` hold `NAME=EXPRESSION` texts; see `Example`.
    """

    path: str
    target: str = ""
    script: str = ""
    init: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    at: str = ""
    notes: str = ""
    overwrite: bool = False


class CaptureFailed(ProblemError):
    """The user's program raised; `details` is its traceback."""

    def __init__(self, message: str, hint: str, details: str) -> None:
        super().__init__(message, hint)
        self.details = details


def capture_apart(job: Job) -> dict[str, Any]:
    """`path`, `name` and `packages` of the problem that was written. Raises ProblemError.

    What the user's program prints goes to standard error.
    """
    root = str(Path(__file__).resolve().parents[2])
    search = [part for part in (os.environ.get("PYTHONPATH"), root) if part]
    reading, writing = os.pipe()
    with os.fdopen(reading) as answers:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness.problem_capture.process", str(writing)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
            stdin=subprocess.PIPE,
            stdout=2,
            text=True,
            pass_fds=(writing,),
        )
        os.close(writing)
        process.communicate(json.dumps(asdict(job)))
        answer = answers.read()
    if not answer:
        code = process.returncode
        ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise ProblemError(f"the program ended the process ({ended})", "run it by hand to see why")
    result: dict[str, Any] = json.loads(answer)
    if "error" in result:
        raise CaptureFailed(**result["error"])
    return result


# float32[8,1024] or int64[8,128]:0..50257
_SHORT = re.compile(r"(?P<dtype>[a-z]\w*)\[(?P<shape>[\d, ]*)\](:(?P<low>-?\d+)\.\.(?P<high>-?\d+))?")


def example_text(text: str) -> str:
    """An input as a torch expression: `dtype[sizes]`, for integers with a half-open range `:LOW..HIGH`, is
    short for one; every other text is one already. Raises ProblemError.
    """
    match = _SHORT.fullmatch(text.strip())
    if match is None:
        return text
    dtype, shape = match["dtype"], ", ".join(re.findall(r"\d+", match["shape"])) or "()"
    sizes = f"({shape},)" if shape != "()" else shape
    named = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    if match["low"] is not None:
        return f"torch.randint({match['low']}, {match['high']}, {sizes}{named})"
    if dtype == "bool":
        return f"torch.rand({shape}) < 0.5"
    if not dtype.startswith(("float", "bfloat", "complex")):
        raise ProblemError(f"which values has {text}?", f"give a range: {text}:0..100")
    return f"torch.randn({shape}{named})"


def _named(texts: list[str], what: str) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise ProblemError(f"--{what} {text!r} is not NAME=VALUE", f"write --{what} 'x=…'")
        found[name.strip()] = value.strip()
    return found


def _value(name: str, text: str, names: dict[str, Any]) -> Any:
    try:
        return eval(text, dict(names))
    except Exception as error:
        hint = "it is a Python expression; a text needs quotes of its own"
        raise ProblemError(f"{name}={text}: {type(error).__name__}: {error}", hint) from None


def _target(job: Job) -> tuple[Any, Any, dict[str, str]]:
    """The module, its inputs, and the texts of those that were given as texts."""
    import torch

    name, colon, attribute = job.target.partition(":")
    if not colon:
        raise ProblemError(f"{job.target} names no class", "write package.module:Name")
    program = importlib.import_module(name)
    thing: Any = program
    for part in attribute.split("."):
        if not hasattr(thing, part):
            raise ProblemError(f"{name} has no {attribute}", "check the name")
        thing = getattr(thing, part)
    names = {**vars(program), "torch": torch}
    texts = {key: example_text(text) for key, text in _named(job.inputs, "input").items()}
    torch.manual_seed(0)
    inputs = {key: _value(key, text, names) for key, text in texts.items()}
    init = {key: _value(key, text, names) for key, text in _named(job.init, "init").items()}
    if isinstance(thing, type):
        try:
            thing = thing(**init)
        except TypeError as error:
            raise ProblemError(
                f"{attribute} cannot be constructed: {error}", "give --init NAME=VALUE"
            ) from None
    elif init:
        raise ProblemError(f"{attribute} is no class", "--init goes with a class")
    return thing, inputs, {key: text for key, text in texts.items() if _only_torch(text)}


def _only_torch(text: str) -> bool:
    """Whether an expression stands for itself in a file that imports torch."""
    names = (node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name))
    return set(names) <= {"torch", "float", "int", "range"}


def _script(path: str) -> tuple[Any, Any]:
    """`module` and `inputs` as a script leaves them."""
    if not Path(path).is_file():
        raise ProblemError(f"{path} does not exist", "check the path")
    sys.path.insert(0, str(Path(path).resolve().parent))
    spec = importlib.util.spec_from_file_location("capture_script", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules["capture_script"] = script
    spec.loader.exec_module(script)
    for name in ("module", "inputs"):
        if not hasattr(script, name):
            raise ProblemError(f"{path} sets no {name}", "it has to set `module` and `inputs`")
    return script.module, script.inputs


def _run(job: Job) -> dict[str, Any]:
    from harness.problem_capture import capture, record_constructors

    record_constructors()
    module, inputs, texts = (*_script(job.script), {}) if job.script else _target(job)
    made = capture(module, inputs, job.path, at=job.at, notes=job.notes, overwrite=job.overwrite, texts=texts)
    return {"path": str(made.path), "name": made.name, "packages": made.packages}


def main(fd: int) -> None:
    job = Job(**json.load(sys.stdin))
    try:
        result = _run(job)
    except (Exception, SystemExit) as error:
        hint = getattr(error, "hint", "the program itself raised this; --verbose shows where")
        text = str(error) if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
        result = {"error": {"message": text, "hint": hint, "details": traceback.format_exc()}}
    with os.fdopen(fd, "w") as answers:
        json.dump(result, answers)


if __name__ == "__main__":
    main(int(sys.argv[1]))
