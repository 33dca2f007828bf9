"""Stages of a region: the passes over a row that its reductions force, and what each pass computes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from agent.recipe.expression import COST
from agent.recipe.graph import Value
from agent.recipe.region import Region, analyse

Residency = Literal["recompute", "selective", "resident"]
#: From this cost on a value of an earlier pass is worth a place in the row buffer.
_WORTH = {"recompute": 10**9, "selective": 6, "resident": 2}


@dataclass(frozen=True)
class Algorithm:
    """How composite reductions run: `two-pass` or `single-pass` variance, `resident` or `online` softmax."""

    meanvar: str = "two-pass"
    softmax: str = "resident"


def specialise(
    region: Region, algorithm: Algorithm, row_length: int = 0
) -> tuple[Region, dict[Value, Value]]:
    """The region with composite reductions spelled out as the algorithm wants, and the old value of
    each output.

    A flat elementwise region gets rows of `row_length`, if that is given.
    """
    rewrite = _Rewrite(algorithm)
    for value in region.members:
        rewrite.add(value)
    outputs = [rewrite.now[v] for v in region.outputs]
    special = analyse(rewrite.members, outputs)
    if row_length and special.mode == "pointwise":
        special.split_rows(row_length)
    return special, dict(zip(outputs, region.outputs, strict=True))


class _Rewrite:
    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.members: list[Value] = []
        self.now: dict[Value, Value] = {}
        self.known: dict[object, Value] = {}

    def add(self, value: Value) -> None:
        args = tuple(self.now.get(a, a) if isinstance(a, Value) else a for a in value.args)
        if value.kind == "reduce" and value.fn.startswith("meanvar") and self.algorithm.meanvar == "two-pass":
            self.now[value] = self._two_pass(value, args)
        elif (
            value.kind == "reduce" and value.fn.startswith("softmax") and self.algorithm.softmax == "resident"
        ):
            self.now[value] = self._resident(value, args)
        else:
            self.now[value] = self._emit(value, value.fn, args, value.shape)

    def _emit(
        self, like: Value, fn: str, args: tuple[object, ...], shape: Sequence[int], kind: str = ""
    ) -> Value:
        key = (
            kind or like.kind,
            fn,
            tuple(id(a) if isinstance(a, Value) else repr(a) for a in args),
            tuple(shape),
        )
        if key not in self.known:
            taken = sum(v.name.startswith(like.name) for v in self.members)
            name = like.name if not taken else f"{like.name}_{taken}x"
            made = Value(name, kind or like.kind, tuple(shape), like.dtype, fn, args, like.attrs)  # type: ignore[arg-type]
            self.members.append(made)
            self.known[key] = made
        return self.known[key]

    def _two_pass(self, value: Value, args: tuple[object, ...]) -> Value:
        (x,) = args
        assert isinstance(x, Value)
        total = self._emit(value, "sum", (x,), value.shape)
        mean = self._emit(value, "div", (total, float(x.numel // value.numel)), value.shape, "map")
        if value.fn.endswith("mean"):
            return mean
        deviation = self._emit(value, "sub", (x, mean), x.shape, "map")
        return self._emit(
            value, "sum", (self._emit(value, "mul", (deviation,) * 2, x.shape, "map"),), value.shape
        )

    def _resident(self, value: Value, args: tuple[object, ...]) -> Value:
        (x,) = args
        assert isinstance(x, Value)
        top = self._emit(value, "max", (x,), value.shape)
        if value.fn.endswith("max"):
            return top
        shifted = self._emit(value, "sub", (x, top), x.shape, "map")
        return self._emit(value, "sum", (self._emit(value, "exp", (shifted,), x.shape, "map"),), value.shape)


@dataclass
class Plan:
    """Per stage: the full values that it computes, the reductions that it finishes, the buffered values it
    writes.
    """

    stages: int
    depth: dict[Value, int]
    needed: list[list[Value]]
    reductions: list[list[Value]]
    buffered: dict[Value, int]
    stored: dict[Value, int]

    def row_values(self, region: Region, after: int) -> list[Value]:
        """Row values that become known after stage `after` (-1: before the first)."""
        return [
            v
            for v in region.members
            if v.kind in ("map", "pick") and not region.is_full(v) and self.depth[v] == after + 1
        ]


def plan(region: Region, residency: Residency) -> Plan:
    """Assigns values to stages, and decides which of them a later stage reads back from the row buffer."""
    depth: dict[Value, int] = {}
    for value in region.members:
        level = max((depth.get(o, 0) for o in value.operands()), default=0)
        depth[value] = level + 1 if value.kind == "reduce" else level
    full_outputs = [v for v in region.outputs if region.is_full(v)]
    last = max([depth[v] - 1 for v in region.members if v.kind == "reduce"], default=-1)
    if full_outputs or last < 0:
        last = max(last, *(depth[v] for v in full_outputs)) if full_outputs else last
    stages = last + 1
    reductions: list[list[Value]] = [[] for _ in range(stages)]
    for value in region.reductions():
        reductions[depth[value] - 1].append(value)
    stored = {v: depth[v] for v in full_outputs}
    targets = [
        [*(next(r.operands()) for r in reductions[s]), *(v for v, at in stored.items() if at == s)]
        for s in range(stages)
    ]
    buffered: dict[Value, int] = {}
    needed: list[list[Value]] = []
    computed: dict[Value, int] = {}
    for stage in range(stages):
        closure = _closure(
            region, targets[stage], stage, computed, buffered=buffered, worth=_WORTH[residency]
        )
        needed.append(closure)
        for value in closure:
            computed.setdefault(value, stage)
    return Plan(stages, depth, needed, reductions, buffered, stored)


def _closure(
    region: Region,
    targets: Iterable[Value],
    stage: int,
    computed: dict[Value, int],
    *,
    buffered: dict[Value, int],
    worth: int,
) -> list[Value]:
    """Full values to compute for the targets, in order; earlier values that are worth it are buffered
    instead.
    """
    inside = set(region.members)
    found: set[Value] = set()
    stack = [t for t in targets if t in inside and region.is_full(t)]
    while stack:
        value = stack.pop()
        if value in found or value in buffered:
            continue
        earlier = computed.get(value, stage) < stage
        if (
            earlier
            and value.dtype == "float32"
            and value.kind == "map"
            and chain_cost(region, value, buffered) >= worth
        ):
            buffered[value] = computed[value]
            continue
        found.add(value)
        stack.extend(o for o in value.operands() if o in inside and region.is_full(o))
    return [v for v in region.members if v in found]


def chain_cost(region: Region, value: Value, buffered: Iterable[Value] = ()) -> int:
    """The cost of computing a full value from the region's loads and from what is buffered already."""
    at_hand = set(buffered)
    inside, seen, total, stack = set(region.members), set(), 0, [value]
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        if v not in inside or v in at_hand:
            total += 1
        elif region.is_full(v):
            total += COST.get(v.fn, 1) if v.kind == "map" else 0
            stack.extend(v.operands())
    return total
