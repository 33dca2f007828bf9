"""What a skill's template sees: C++ text of loads, passes, reductions and stores of one region.

The template owns the loops, the threads and the buffers; the text here only assumes the names that the loops
of `ke_vector.h` give: `L` (whole vector, tail or single element), `i` (position along the vectorised axis)
and `u` (accumulator).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from agent.recipe.axes import Incompatible
from agent.recipe.expression import Operand, c_type, literal, render
from agent.recipe.graph import Value
from agent.recipe.region import Access, Region
from agent.recipe.stages import Plan, Residency, plan

ACCUMULATORS = {"sum": "Sum", "prod": "Prod", "max": "Max", "min": "Min"}


@dataclass(frozen=True)
class Argument:
    """A pointer parameter of the kernel and the access that it serves."""

    pointer: str
    access: Access
    store: bool

    @property
    def c_type(self) -> str:
        base = {"float32": "float", "bool": "uint8_t", "int64": "int64_t"}[self.access.value.dtype]
        return f"{base}* __restrict" if self.store else f"const {base}*"


@dataclass(frozen=True)
class Reduced:
    """One reduction of a stage: the accumulator's type (to be completed by its width), its operand, its
    results.
    """

    name: str
    kind: str
    operand: str
    shift: str
    results: tuple[tuple[str, str], ...]

    @property
    def accumulator(self) -> str:
        return ACCUMULATORS.get(self.kind, "")


@dataclass(frozen=True)
class Stage:
    """One pass. `body` computes, `reductions` consume, `buffer` and `stores` write; `after` are row
    statements.
    """

    index: int
    body: list[str]
    reductions: list[Reduced]
    buffer: list[tuple[str, str]]
    stores: list[tuple[str, str, int, str]]
    after: list[str]
    row_stores: list[tuple[str, str, int]]


class Kernel:
    """The text of one region for one algorithm. `lanes` vectorises over the last outer axis instead of an
    inner one.
    """

    def __init__(self, name: str, region: Region, residency: Residency = "selective") -> None:
        self.name = name
        self.region = region
        self.lanes = region.mode == "lanes"
        self.plan: Plan = plan(region, residency)
        self.arguments: list[Argument] = []
        self._pointer: dict[int, str] = {}
        for store, accesses in ((False, region.loads), (True, region.stores)):
            for access in accesses:
                pointer = f"p{len(self.arguments)}_{access.value.name}"
                self._pointer[id(access)] = pointer
                self.arguments.append(Argument(pointer, access, store))
        across = [a for a in self.arguments if not a.store and self._across(a.access)]
        # Tiles have one direction: loads that are contiguous along a third axis are gathered.
        self.staged = [a for a in across if _unit(a.access) == _unit(across[0].access)]
        if region.mode == "transpose" and not self.staged:
            raise Incompatible("no float32 load to transpose")
        self.stages = [self._stage(s) for s in range(self.plan.stages)]

    # Loop structure

    @property
    def vector_axis(self) -> int:
        return self.region.outer[-1] if self.lanes else self.region.inner[-1]

    @property
    def row_axes(self) -> list[int]:
        return self.region.outer[:-1] if self.lanes else self.region.outer

    @property
    def mid_axes(self) -> list[int]:
        """The axes of a pass that are not vectorised."""
        return self.region.inner if self.lanes else self.region.inner[:-1]

    @property
    def rows(self) -> int:
        return prod(self.region.sizes[a] for a in self.row_axes)

    @property
    def mids(self) -> int:
        return prod(self.region.sizes[a] for a in self.mid_axes)

    @property
    def width(self) -> int:
        return self.region.sizes[self.vector_axis]

    @property
    def cols(self) -> int:
        return self.region.cols

    @property
    def buffers(self) -> list[str]:
        return [self.var(v) for v in self.plan.buffered]

    @property
    def signature(self) -> str:
        return ", ".join(
            [*(f"{a.c_type} {a.pointer}" for a in self.arguments), "int64_t row0", "int64_t row1"]
        )

    def index(self, axes: Sequence[int], flat: str) -> list[str]:
        """Statements that split a flat index over `axes` into o<axis> variables."""
        if len(axes) == 1:
            return [f"const int64_t o{axes[0]} = {flat};"]
        lines, rest = [], flat
        for position, axis in reversed(list(enumerate(axes))):
            size = self.region.sizes[axis]
            lines.append(
                f"const int64_t o{axis} = {rest} % {size};"
                if position
                else f"const int64_t o{axis} = {rest};"
            )
            rest = f"({rest}) / {size}" if position else rest
        return lines

    @property
    def row_index(self) -> list[str]:
        return self.index(self.row_axes, "row")

    @property
    def row_pointers(self) -> list[str]:
        """Pointers to the start of the row, for every argument."""
        return [
            self._advance(a, a.pointer, "r", self.row_axes, a.access.where.offset) for a in self.arguments
        ]

    def mid_pointers(self, text: str) -> list[str]:
        """Pointers to the start of a pass's vectorised axis, for the arguments that `text` uses."""
        return [
            self._advance(a, f"{a.pointer}_r", "m", self.mid_axes, 0)
            for a in self.arguments
            if f"{a.pointer}_m" in text
        ]

    def address(self, argument: Argument, axes: Sequence[int]) -> str:
        """The address of an argument's element at the o<axis> of `axes`."""
        terms = [f"o{a} * {argument.access.stride[a]}" for a in axes if argument.access.stride.get(a)]
        offset = [str(argument.access.where.offset)] if argument.access.where.offset else []
        return " + ".join([argument.pointer, *offset, *terms])

    def _advance(self, argument: Argument, start: str, suffix: str, axes: Sequence[int], offset: int) -> str:
        terms = [str(offset)] if offset else []
        terms += [f"o{a} * {argument.access.stride[a]}" for a in axes if argument.access.stride.get(a)]
        return f"{argument.c_type} {argument.pointer}_{suffix} = {' + '.join([start, *terms])};"

    @property
    def outside_tile(self) -> list[int]:
        return [a for a in self.row_axes if a != self.tile_axis]

    @property
    def tile_axis(self) -> int:
        """The axis along which the staged loads of a transposition are contiguous."""
        axis = _unit(self.staged[0].access)
        assert axis is not None
        return axis

    def _across(self, access: Access) -> bool:
        """Whether a load is to be transposed: contiguous along another axis than the vectorised one."""
        return (
            self.region.mode == "transpose"
            and access.value.dtype == "float32"
            and access.stride.get(self.vector_axis, 0) > 1
            and _unit(access) is not None
        )

    # Names and operands

    def var(self, value: Value) -> str:
        return f"v_{_source(value, self.region).name}"

    def _stage(self, index: int) -> Stage:
        region, steps = self.region, self.plan
        read = {
            o
            for v in (*steps.needed[index], *steps.reductions[index])
            for o in map(self._member, v.operands())
        }
        read |= {v for v, at in steps.stored.items() if at == index}
        body = [
            f"const ke::vf {self.var(v)} = L.load(b_{self.var(v)} + m + i);"
            for v, at in steps.buffered.items()
            if at < index and v in read
        ]
        body += [self._define(v, vector=True) for v in steps.needed[index]]
        reductions, done = [], set()
        for value in steps.reductions[index]:
            kind = value.fn.split(".")[0]
            source = next(value.operands())
            if (kind, source) in done:
                continue
            done.add((kind, source))
            group = [
                r
                for r in steps.reductions[index]
                if r.fn.split(".")[0] == kind and next(r.operands()) is source
            ]
            results = tuple((r.fn.partition(".")[2], self.var(r)) for r in group)
            shift = self._single(source, "0") if kind == "meanvar" and not self.lanes else ""
            reductions.append(
                Reduced(f"a_{value.name}", kind, self._operand(value, 0, True).text, shift, results)
            )
        buffer = [(self.var(v), self.var(v)) for v, at in steps.buffered.items() if at == index]
        stores = [
            (f"{self._pointer[id(s)]}_m", self.var(s.value), s.stride.get(self.vector_axis, 0), s.value.dtype)
            for s in region.stores
            if steps.stored.get(s.value) == index
        ]
        row_stores = [
            (f"{self._pointer[id(s)]}_r", self.var(s.value), s.stride.get(self.vector_axis, 0))
            for s in region.stores
            if not region.is_full(s.value) and max(1, steps.depth[s.value]) == index + 1
        ]
        return Stage(index, [b for b in body if b], reductions, buffer, stores, self._rows(index), row_stores)

    @property
    def before(self) -> list[str]:
        """Row statements in front of the first pass: loads of one value per row and what follows from
        them.
        """
        lines = []
        for access in self.region.loads:
            if not self.region.full_load(access) and not self.lanes:
                pointer = self._pointer[id(access)]
                kind = c_type(access.value.dtype, vector=False)
                lines.append(f"const {kind} {self.scalar(access)} = *{pointer}_r;")
        return [*lines, *self._rows(-1)]

    def _member(self, value: Value) -> Value:
        return _source(value, self.region)

    def scalar(self, access: Access) -> str:
        return f"s_{self._pointer[id(access)]}"

    def _rows(self, stage: int) -> list[str]:
        return [
            t for v in self.plan.row_values(self.region, stage) if (t := self._define(v, vector=self.lanes))
        ]

    def row_value_types(self) -> list[tuple[str, str]]:
        """(type, name) of all values per row, for kernels that keep them in arrays."""
        return [
            (c_type(v.dtype, True), self.var(v))
            for v in self.region.members
            if v.kind != "view" and not self.region.is_full(v)
        ]

    def _define(self, value: Value, *, vector: bool) -> str:
        if value.kind == "view":
            return ""
        if value.kind == "pick":
            return self._pick(value)
        row = not self.region.is_full(value)
        text = render(
            value.fn, [self._operand(value, p, vector) for p in range(len(value.args))], value.dtype, vector
        )
        target = (
            f"{self.var(value)}[u]"
            if self.lanes and row
            else f"const {c_type(value.dtype, vector)} {self.var(value)}"
        )
        return f"{target} = {text};"

    def _operand(self, value: Value, position: int, vector: bool) -> Operand:
        arg = value.args[position]
        if not isinstance(arg, Value):
            first = next(value.operands())
            dtype = "bool" if isinstance(arg, bool) else first.dtype if value.fn != "where" else value.dtype
            return Operand(literal(arg, dtype), dtype, False)
        position = sum(isinstance(a, Value) for a in value.args[:position])
        access = self.region.uses.get((value, position))
        if access is not None:
            return self._load(access, vector)
        source = _source(arg, self.region)
        row = not self.region.is_full(source)
        name = self.var(source)
        if self.lanes:
            return Operand(f"{name}[u]" if row else name, arg.dtype, True)
        return Operand(name, arg.dtype, vector and not row)

    def _load(self, access: Access, vector: bool) -> Operand:
        pointer = self._pointer[id(access)]
        dtype = access.value.dtype
        if not self.region.full_load(access) and not self.lanes:
            return Operand(self.scalar(access), dtype, False)
        stride = access.stride.get(self.vector_axis, 0)
        at = f"{pointer}_m" if vector else f"{pointer}_r"
        if vector and self.lanes and not self.region.full_load(access):
            at = f"{pointer}_r"
        if vector and any(a.pointer == pointer for a in self.staged):
            return Operand(f"L.load(t_{pointer} + i)", dtype, True)
        if stride == 0:
            return Operand(f"{at}[0]" if dtype != "bool" else f"({at}[0] != 0)", dtype, False)
        text = f"L.load({at} + i)" if stride == 1 else f"L.load({at} + i * {stride}, {stride})"
        return Operand(text, dtype, vector)

    # Single elements

    def _single(self, target: Value, position: str) -> str:
        """A block that leaves in `e` the element of a full value at `position` of this row."""
        if target not in self.region.members:
            access = next(
                x for (v, p), x in self.region.uses.items() if v.args and self._reads(v, p) is target
            )
            lines, result = "", self._load(access, False).text
        else:
            lines = " ".join(self._define(v, vector=False) for v in self._chain(target) if v.kind != "view")
            result = self.var(target)
        return f"[&] {{ const ke::One L{{}}; const int64_t i = {position}; {lines} return {result}; }}()"

    @staticmethod
    def _reads(value: Value, position: int) -> Value:
        return list(value.operands())[position]

    def _chain(self, target: Value) -> list[Value]:
        found, stack = set(), [target]
        while stack:
            value = stack.pop()
            if value in found or value not in self.region.members or not self.region.is_full(value):
                continue
            found.add(value)
            stack.extend(value.operands())
        return [v for v in self.region.members if v in found]

    def _pick(self, value: Value) -> str:
        if len(self.region.inner) != 1:
            raise Incompatible("a pick over several axes")
        source, _ = value.operands()
        index = self._operand(value, 1, False).text
        element = self._single(source, index)
        # An index outside the row has no element: the result is NaN, never foreign memory.
        inside = f"{index} >= 0 && {index} < {self.width}"
        return f"const float {self.var(value)} = ({inside}) ? {element} : ke::kNaN;"


def _unit(access: Access) -> int | None:
    """The axis along which an access is contiguous."""
    return next((axis for axis, stride in access.stride.items() if stride == 1), None)


def _source(value: Value, region: Region) -> Value:
    """The member behind a chain of views inside the region."""
    while value.kind == "view" and value in region.dims:
        (operand,) = value.operands()
        if operand not in region.dims:
            break
        value = operand
    return value
