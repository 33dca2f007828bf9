"""META: what a problem's author says about it, checked before anything is run."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from harness.worker.compare import parse_tolerance

Declared = Literal["float32", "tf32"]
MAX_SHAPES = 32


class InvalidProblem(Exception):
    """The problem file breaks the contract; the text is one line for a person."""


@dataclass(frozen=True)
class Shape:
    """A set of sizes: names of the module that are set before its functions are called; none for the file's
    own.
    """

    name: str = "main"
    weight: float = 1.0
    globals: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Meta:
    """`shapes` holds the file's own sizes first. `precision` is what `--precision as-declared` goes by."""

    tolerance: Any = field(default_factory=dict)
    ops: Sequence[str] = ()
    notes: str = ""
    shapes: Sequence[Shape] = (Shape(),)
    backward: bool = False
    precision: Declared = "float32"


def parse_meta(module: Mapping[str, Any]) -> Meta:
    """META of a problem's module; raises InvalidProblem."""
    value = module.get("META", {})
    if not isinstance(value, dict):
        raise InvalidProblem("META is not a dictionary")
    unknown = sorted(set(map(str, value)) - set(Meta.__dataclass_fields__))
    if unknown:
        raise InvalidProblem(f"META has unknown keys: {', '.join(unknown)}")
    meta = Meta(**{**value, "shapes": _shapes(value.get("shapes", []), module)})
    try:
        parse_tolerance(meta.tolerance)
    except ValueError as error:
        raise InvalidProblem(str(error)) from error
    if not isinstance(meta.notes, str):
        raise InvalidProblem("META['notes'] is not a text")
    if not isinstance(meta.ops, list | tuple) or not all(isinstance(op, str) for op in meta.ops):
        raise InvalidProblem("META['ops'] is not a list of names")
    if not isinstance(meta.backward, bool):
        raise InvalidProblem("META['backward'] is neither True nor False")
    if meta.precision not in get_args(Declared):
        raise InvalidProblem(f"META['precision'] is none of {', '.join(get_args(Declared))}")
    return meta


def _shapes(value: Any, module: Mapping[str, Any]) -> tuple[Shape, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidProblem("META['shapes'] is not a list")
    if len(value) > MAX_SHAPES:
        raise InvalidProblem(f"META['shapes'] has more than {MAX_SHAPES} entries")
    shapes = [parse_shape(f"META['shapes'][{i}]", entry, module) for i, entry in enumerate(value)]
    own = [shape for shape in shapes if not shape.globals] or [Shape()]
    if len(own) > 1:
        raise InvalidProblem(
            "META['shapes'] has two entries without globals: one may stand for the file's own"
        )
    ordered = (*own, *(shape for shape in shapes if shape.globals))
    names = [shape.name for shape in ordered]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidProblem(f"META['shapes'] names {twice!r} twice")
    return ordered


def parse_shape(where: str, entry: Any, module: Mapping[str, Any]) -> Shape:
    """One set of sizes for a problem's module; raises InvalidProblem, with `where` in its text."""
    if not isinstance(entry, dict):
        raise InvalidProblem(f"{where} is not a dictionary")
    unknown = sorted(set(map(str, entry)) - {"name", "weight", "globals"})
    if unknown:
        raise InvalidProblem(f"{where} has unknown keys: {', '.join(unknown)}")
    sizes, weight = entry.get("globals", {}), entry.get("weight", 1.0)
    if not isinstance(sizes, dict):
        raise InvalidProblem(f"{where}['globals'] is not a dictionary")
    for name in sizes:
        if name not in module or name == "META":
            raise InvalidProblem(f"{where} sets {name}, which the problem does not define")
        if callable(module[name]) or isinstance(module[name], types.ModuleType):
            raise InvalidProblem(f"{where} sets {name}, which is no size")
    usual = ",".join(f"{name}={size}" for name, size in sizes.items()) or "main"
    name = entry.get("name", usual)
    if not isinstance(name, str) or not name:
        raise InvalidProblem(f"{where}['name'] is not a text")
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 < weight < float("inf"):
        raise InvalidProblem(f"{where}['weight'] is no positive number")
    return Shape(name, float(weight), dict(sizes))
