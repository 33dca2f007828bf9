"""Which of a candidate's parameters and buffers takes which of the reference's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Entry = tuple[str, bool, list[int]]  # state-dict name, whether it is floating, shape


@dataclass(frozen=True)
class Matching:
    """`names` pairs a candidate's state with layout entries; None where it cannot be paired.

    `needed` is False where the reference has no floating state at all: then there is nothing to perturb.
    `empty` says that the candidate has none; `absent` are the reference's unpaired ones, where the candidate
    has too few numbers to hold them in another form.
    """

    names: list[tuple[str, int]] | None
    needed: bool = True
    empty: bool = False
    detail: str = ""
    absent: tuple[str, ...] = ()


def match_state(reference: Sequence[Entry], candidate: Sequence[Entry]) -> Matching:
    """By name and shape; else floating state by order, where the shapes are the same one by one."""
    wanted = [(i, name, list(shape)) for i, (name, floating, shape) in enumerate(reference) if floating]
    offered = {name: list(shape) for name, _, shape in candidate}
    floating = [(name, list(shape)) for name, is_floating, shape in candidate if is_floating]
    named = [(name, i) for i, (name, _, shape) in enumerate(reference) if offered.get(name) == list(shape)]
    if not wanted:
        return Matching(named, needed=False)
    missing = [name for _, name, shape in wanted if offered.get(name) != shape]
    if not missing:
        return Matching(named)
    if [shape for _, _, shape in wanted] == [shape for _, shape in floating]:
        ordered = [(name, i) for (name, _), (i, _, _) in zip(floating, wanted, strict=True)]
        return Matching([*ordered, *((name, i) for name, i in named if not reference[i][1])])
    shown = ", ".join(missing[:4]) + (" …" if len(missing) > 4 else "")
    detail = f"no {shown} of the reference's shape: the judge loads weights by state-dict name"
    taken = {name for name, _ in named}
    left = sum(math.prod(shape) for name, shape in floating if name not in taken)
    lost = [(name, shape) for _, name, shape in wanted if name in missing]
    # They may be held in another form, under another name or several in one.
    held = left >= sum(math.prod(shape) for _, shape in lost)
    absent = () if held else tuple(name for name, _ in lost)
    return Matching(None, empty=not floating, detail=detail, absent=absent)
