"""Problems captured from a user's own program."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from harness.errors import ProblemError
from harness.problem_capture import capture
from harness.problem_capture.process import Job, capture_apart, example_text
from harness.problem_capture.source import Closure, NotSelfContained
from harness.worker.child import load_module

UTILS = """
import math
import torch
from torch import nn

EPS = 1e-6

# Half of the features, turned by a right angle.
def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)

class Base(nn.Module):
    def scale(self, width):
        return math.sqrt(width)

UNUSED = open("/nowhere/at/all") if False else 3
"""
LAYERS = """
from __future__ import annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F
from . import helpers
from .utils import EPS, Base
from .utils import rotate_half as rot

if TYPE_CHECKING:
    from .nowhere import Thing

@dataclass
class Config:
    width: int = 64
    eps: float = EPS

class Norm(nn.Module):
    def __init__(self, width, eps=EPS):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight

class Block(Base):
    def __init__(self, config: Config, act=F.gelu, *, bias: Thing = True):
        super().__init__()
        self.norm = Norm(config.width)
        self.proj = nn.Linear(config.width, config.width, bias=bias)
        self.act = act
        self.drop = nn.Dropout(0.1)
    def forward(self, x, mask=None, *, factor=1.0):
        x = rot(self.norm(x)) / self.scale(x.shape[-1]) * factor
        x = self.act(self.drop(self.proj(x)))
        return x if mask is None else x.masked_fill(mask, 0.0)

class UsesModule(nn.Module):
    def forward(self, x):
        return helpers.twice(x)

class Hidden(nn.Module):
    def forward(self, x):
        from .helpers import twice
        return twice(x)

class Made(nn.Module):
    def forward(self, x):
        return x * LATE

globals()["LATE"] = 3.0

class Tuned(nn.Module):
    def forward(self, x):
        return x * FACTOR

FACTOR = 2.0

def fused(x, y, alpha=2.0):
    return rot(x) * alpha + y
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module `theirs.layers` of a small package."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "utils.py").write_text(UTILS)
    (folder / "layers.py").write_text(LAYERS)
    (folder / "helpers.py").write_text("def twice(x):\n    return x * 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield importlib.import_module("theirs.layers")
    for name in [n for n in sys.modules if n.partition(".")[0] == "theirs"]:
        del sys.modules[name]


def loaded(path: Path) -> Any:
    return load_module("captured", path.read_text(), path.with_name("loaded.py"))


def test_module_with_plain_arguments(program: Any, tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    made = capture(program.Norm(48), torch.randn(8, 48), path, init={"width": 48}, notes="a norm")
    assert (made.name, made.packages) == ("Norm", [])
    problem = loaded(path)
    assert problem.get_init_inputs() == [48]
    assert problem.META == {"notes": "a norm"}
    (x,) = problem.get_inputs()
    assert torch.equal(problem.Model(48)(x), program.Norm(48)(x))
    text = path.read_text()
    assert "rotate_half" not in text, "what is not needed stays out"
    assert "theirs" not in text.partition("\n")[2], "nothing of the program is imported"


def test_configuration_modes_dtypes_and_named_arguments(program: Any, tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    block = program.Block(program.Config(32), bias=False).eval().bfloat16()
    inputs = {"x": torch.randn(64, 32).bfloat16(), "mask": torch.rand(64, 32) < 0.2, "factor": 0.5}
    capture(block, inputs, path, init={"config": program.Config(32), "bias": False})
    problem = loaded(path)
    model = problem.Model(*problem.get_init_inputs())
    assert not model.training
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    model.load_state_dict(block.state_dict())
    drawn = problem.get_inputs()
    assert drawn[2] == 0.5
    assert torch.equal(model(*drawn), block(drawn[0], drawn[1], factor=0.5))


def test_compiled_module_is_captured_as_it_was(program: Any, tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    capture(torch.compile(program.Norm(8)), torch.randn(8, 8), path, init=[8])
    assert "class Model(Norm)" in path.read_text()


def test_function_and_shared_tensors(program: Any, tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    x = torch.randn(8, 32)
    capture(program.fused, [x, x], path)
    one, two = loaded(path).get_inputs()
    assert one is two


def test_command_in_a_process_of_its_own(program: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """A script; constructor arguments are recorded, and a part is captured with what it is called with."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\nfrom theirs.layers import Block, Config, Norm\nprint('noise')\n"
        "module = torch.nn.Sequential(torch.nn.Linear(8, 16), Block(Config(16), torch.relu), Norm(16))\n"
        "inputs = torch.randn(64, 8)\n"
    )
    path = tmp_path / "problem.py"
    made = capture_apart(Job(str(path), script=str(script), at="1"))
    assert made == {"path": str(path), "name": "Block", "packages": []}
    problem = loaded(path)
    assert [t.shape for t in problem.get_inputs()] == [(64, 16)]
    assert problem.Model().act is torch.relu


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("UsesModule", "uses the module theirs.helpers as a whole"),
        ("Hidden", "imports theirs.helpers in a nested block"),
        ("Made", "LATE, which Made uses, is set by no statement"),
    ],
)
def test_what_cannot_be_self_contained_is_refused(program: Any, name: str, words: str) -> None:
    with pytest.raises(NotSelfContained, match=words) as caught:
        Closure().add(getattr(program, name))
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_class_inside_a_function_is_refused() -> None:
    class Local(torch.nn.Module):
        pass

    with pytest.raises(NotSelfContained, match="no name at the top level"):
        Closure().add(Local)


def test_what_does_otherwise_than_the_module_is_not_written(program: Any, tmp_path: Path) -> None:
    """The program changed a global after it was loaded: its text says something else."""
    program.FACTOR = 5.0
    path = tmp_path / "problem.py"
    with pytest.raises(ProblemError, match="output 0 differs"):
        capture(program.Tuned(), torch.randn(8, 8), path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("inputs", "options", "words"),
    [
        ([torch.ones(3), 1, 2, 3], {}, "do not fit Norm"),
        ([torch.ones(3)], {}, "constructor arguments of Norm are not known"),
        ([torch.ones(3)], {"init": {"high": 3}}, "cannot be constructed"),
        ([torch.ones(3)], {"init": [3], "at": "inner"}, "no part inner"),
        ([torch.ones(3).to_sparse()], {"init": [3]}, "cannot be captured"),
    ],
)
def test_wrong_use(program: Any, tmp_path: Path, inputs: Any, options: Any, words: str) -> None:
    with pytest.raises(ProblemError, match=words) as caught:
        capture(program.Norm(3), inputs, tmp_path / "problem.py", **options)
    assert caught.value.hint
    (tmp_path / "there.py").write_text("")
    with pytest.raises(ProblemError, match="exists already"):
        capture(program.Norm(3), inputs, tmp_path / "there.py")


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("float32[8,1024]", "torch.randn(8, 1024)"),
        ("bfloat16[8]", "torch.randn(8, dtype=torch.bfloat16)"),
        ("int64[4,5]:0..50257", "torch.randint(0, 50257, (4, 5,), dtype=torch.int64)"),
        ("bool[3]", "torch.rand(3) < 0.5"),
        ("float32[]", "torch.randn(())"),
        ("torch.randn(3).t()", "torch.randn(3).t()"),
    ],
)
def test_short_inputs(text: str, expression: str) -> None:
    assert example_text(text) == expression
    with pytest.raises(ProblemError, match="which values"):
        example_text("int64[3]")


def test_recording_of_constructors() -> None:
    """In another process, recording is for good. A base class that has a `__new__` is still asked."""
    code = """
import torch
from harness.problem_capture import record_constructors
from harness.problem_capture.construction import arguments_of
record_constructors()
class Base:
    def __new__(cls, *args):
        made = object.__new__(cls)
        made.seen = args
        return made
class Mixed(torch.nn.Module, Base):
    def __init__(self, n):
        super().__init__()
assert arguments_of(torch.nn.Linear(3, 4, bias=False)).arguments["out_features"] == 4
assert Mixed(5).seen == (5,)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
