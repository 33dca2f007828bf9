"""A region: values that one kernel computes, over one iteration domain of outer and inner axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from agent.recipe.axes import Axes, Incompatible, Space
from agent.recipe.graph import Value
from agent.recipe.layout import Layout, contiguous, layout

Mode = Literal["pointwise", "transpose", "rows", "lanes", "all"]
#: Fewer rows than this leave cores idle: such reductions are spread over their inner axes.
FEW_ROWS = 8


@dataclass(eq=False)
class Access:
    """A load of an outside value or a store of an output. `stride` maps axis to elements; absent axes are
    broadcast.
    """

    value: Value
    where: Layout
    dims: list[Axes]
    stride: dict[int, int] = field(default_factory=dict)

    @property
    def extent(self) -> int:
        return len(self.stride)


@dataclass(eq=False)
class Region:
    """Axes in loop order. Without reductions, `inner` is the one axis that is vectorised."""

    members: list[Value]
    outputs: list[Value]
    loads: list[Access]
    stores: list[Access]
    uses: dict[tuple[Value, int], Access]
    dims: dict[Value, list[Axes]]
    sizes: dict[int, int]
    outer: Axes
    inner: Axes
    mode: Mode

    @property
    def rows(self) -> int:
        return prod(self.sizes[a] for a in self.outer)

    @property
    def cols(self) -> int:
        return prod(self.sizes[a] for a in self.inner)

    def axes_of(self, value: Value) -> set[int]:
        return {a for group in self.dims[value] for a in group}

    def is_full(self, value: Value) -> bool:
        """Whether a member differs along an inner axis; otherwise it is one value per row."""
        return bool(self.axes_of(value) & set(self.inner))

    def full_load(self, access: Access) -> bool:
        return any(a in access.stride for a in self.inner)

    def split_rows(self, length: int) -> None:
        """Makes rows of `length` out of a region that is one flat run of elements."""
        if self.outer or len(self.inner) != 1 or self.sizes[self.inner[0]] % length:
            return
        (inner,) = self.inner
        row = max(self.sizes) + 1
        self.sizes[row] = self.sizes[inner] // length
        self.sizes[inner] = length
        self.outer = [row]
        for access in (*self.loads, *self.stores):
            if inner in access.stride:
                access.stride[row] = access.stride[inner] * length

    def reductions(self) -> list[Value]:
        return [v for v in self.members if v.kind == "reduce"]

    def operators(self) -> set[str]:
        return {v.fn for v in self.members}


def analyse(members: Sequence[Value], outputs: Iterable[Value]) -> Region:
    """The region of `members` (in order) that must leave `outputs` in memory. Raises Incompatible."""
    wanted = list(outputs)
    try:
        return _analyse(members, wanted, shared=True)
    except Incompatible:
        return _analyse(members, wanted, shared=False)


def _analyse(members: Sequence[Value], wanted: list[Value], *, shared: bool) -> Region:
    """With `shared`, all views of one outside tensor walk the same axes; otherwise each view has its own."""
    space = Space()
    inside = set(members)
    dims: dict[Value, list[Axes]] = {}
    uses: dict[tuple[Value, int], Access] = {}
    outside: dict[Value, list[Axes]] = {}

    def external(value: Value) -> list[Axes]:
        if value not in outside:
            fresh = value.kind != "view" or value.fn == "slice" or not shared
            outside[value] = (
                [space.fresh(s) for s in value.shape]
                if fresh
                else _dims(space, value, [external(o) for o in value.operands()])
            )
        return outside[value]

    for value in members:
        operands: list[list[Axes]] = []
        for position, operand in enumerate(value.operands()):
            if operand in inside:
                operands.append(dims[operand])
            else:
                uses[value, position] = Access(operand, layout(operand), external(operand))
                operands.append(uses[value, position].dims)
        dims[value] = _dims(space, value, operands)
    reduced = _reduced_axes(space, members, dims, uses)
    for value in members:
        dims[value] = [space.resolve(d) for d in dims[value]]
        _distinct(dims[value])
    loads = _loads(space, uses)
    stores = [_store(space, v, dims[v]) for v in wanted]
    domain = sorted(
        {a for v in members for d in dims[v] for a in d} | {a for x in loads for a in x.stride} | reduced
    )
    _check(members, wanted, dims, uses, reduced=reduced, domain=domain)
    outer, inner, mode = _order(space, loads, stores, domain, reduced)
    region = Region(list(members), wanted, loads, stores, uses, dims, dict(space.sizes), outer, inner, mode)
    _coalesce(region)
    if not reduced:
        if not region.outer:
            raise Incompatible("a single element")
        region.inner = [region.outer.pop()]
    _check_types(region)
    return region


def _dims(space: Space, value: Value, operands: list[list[Axes]]) -> list[Axes]:
    if value.kind == "map":
        return _broadcast(space, value, operands)
    if value.kind == "reduce":
        return [[] if i in value.attrs["dims"] else d for i, d in enumerate(operands[0])]
    if value.kind == "pick":
        source, index = operands
        for i, d in enumerate(index):
            if i != value.attrs["dim"]:
                space.unify(source[i], d)
        return [[] if i == value.attrs["dim"] else d for i, d in enumerate(source)]
    if value.kind == "view":
        if value.fn == "permute":
            return [operands[0][p] for p in value.attrs["perm"]]
        if value.fn == "reshape":
            return space.regroup([a for d in operands[0] for a in d], value.shape)
        if value.fn == "expand":
            (narrow,) = value.operands()
            lead = len(value.shape) - len(narrow.shape)
            return [
                space.fresh(size) if i < lead or narrow.shape[i - lead] != size else operands[0][i - lead]
                for i, size in enumerate(value.shape)
            ]
    raise Incompatible(f"{value.kind} {value.fn} inside a kernel")


def _broadcast(space: Space, value: Value, operands: list[list[Axes]]) -> list[Axes]:
    result: list[Axes] = [[] for _ in value.shape]
    for operand in operands:
        lead = len(result) - len(operand)
        for i, axes in enumerate(operand):
            if not axes:
                continue
            if result[lead + i]:
                space.unify(result[lead + i], axes)
            else:
                result[lead + i] = axes
    return result


def _reduced_axes(
    space: Space,
    members: Sequence[Value],
    dims: dict[Value, list[Axes]],
    uses: dict[tuple[Value, int], Access],
) -> set[int]:
    """The axes that all reductions of the region share."""
    sets: list[tuple[Value, set[int]]] = []
    for value in members:
        if value.kind in ("reduce", "pick"):
            source = next(value.operands())
            known = dims[source] if source in dims else uses[value, 0].dims
            along = value.attrs["dims"] if value.kind == "reduce" else (value.attrs["dim"],)
            sets.append((value, {a for i in along for a in space.resolve(known[i])}))
    reductions = [s for v, s in sets if v.kind == "reduce"]
    if not reductions:
        if sets:
            raise Incompatible("a pick without a reduction of its row")
        return set()
    if any(s != reductions[0] for _, s in sets):
        raise Incompatible("reductions over different axes")
    if not reductions[0]:
        raise Incompatible("a reduction over one element")
    return reductions[0]


def _distinct(dims: list[Axes]) -> None:
    flat = [a for d in dims for a in d]
    if len(flat) != len(set(flat)):
        raise Incompatible("one value is read in two orders")


def _loads(space: Space, uses: dict[tuple[Value, int], Access]) -> list[Access]:
    """Resolves the loads and shares equal ones. An axis with stride 0 is a broadcast."""
    known: dict[tuple[Value, tuple[tuple[int, ...], ...]], Access] = {}
    for key, access in uses.items():
        access.dims = [space.resolve(d) for d in access.dims]
        _distinct(access.dims)
        same = known.setdefault((access.value, tuple(tuple(d) for d in access.dims)), access)
        uses[key] = same
        if same is access:
            for axes, stride in zip(access.dims, access.where.strides, strict=True):
                access.stride.update({a: s for a, s in space.strides(axes, stride).items() if s})
    return list(known.values())


def _store(space: Space, value: Value, dims: list[Axes]) -> Access:
    access = Access(value, Layout(value, 0, contiguous(value.shape)), dims)
    for axes, stride in zip(dims, access.where.strides, strict=True):
        access.stride.update(space.strides(axes, stride))
    return access


def _check(
    members: Sequence[Value],
    outputs: list[Value],
    dims: dict[Value, list[Axes]],
    uses: dict[tuple[Value, int], Access],
    *,
    reduced: set[int],
    domain: list[int],
) -> None:
    outer = set(domain) - reduced
    for value in members:
        if value.kind == "reduce":
            (source,) = value.operands()
            known = dims[source] if source in dims else uses[value, 0].dims
            if {a for d in known for a in d} != set(domain):
                raise Incompatible(f"{value.name} does not reduce over the whole domain")
    for value in outputs:
        axes = {a for d in dims[value] for a in d}
        if not (axes == set(domain) or (reduced and axes == outer)):
            raise Incompatible(f"{value.name} does not cover the domain")
    if not any(v.kind != "view" for v in members):
        raise Incompatible("nothing to compute")


def _order(
    space: Space, loads: list[Access], stores: list[Access], domain: list[int], reduced: set[int]
) -> tuple[Axes, Axes, Mode]:
    """Loop order: as the largest operand lies in memory, or as the output where nothing is reduced."""

    def by(access: Access) -> Axes:
        rest = [a for a in domain if a not in access.stride]
        return rest + sorted(access.stride, key=lambda a: -access.stride[a])

    if not reduced:
        order = by(max(stores, key=lambda s: s.extent))
        return order, [], "transpose" if _transposed(loads, order) else "pointwise"
    size = {id(x): prod(space.sizes[a] for a in x.stride) for x in loads}
    primary = max(loads, key=lambda x: size[id(x)]) if loads else stores[0]
    order = by(primary)
    outer, inner = [a for a in order if a not in reduced], [a for a in order if a in reduced]
    rows = prod(space.sizes[a] for a in outer)
    if rows < FEW_ROWS and order[-1] in reduced:
        return outer, inner, "all" if not outer else "rows"
    return outer, inner, "rows" if order[-1] in reduced else "lanes"


def _transposed(loads: list[Access], order: Axes) -> bool:
    """Whether a large load is contiguous along another axis than the output."""
    last = order[-1] if order else -1
    return any(
        x.extent >= 2 and x.stride.get(last, 1) != 1 and any(s == 1 for s in x.stride.values()) for x in loads
    )


def _coalesce(region: Region) -> None:
    """Merges neighbouring axes that every access walks with one stride."""
    accesses = [*region.loads, *region.stores]

    def merge(order: Axes) -> Axes:
        result: Axes = []
        for axis in order:
            if result and all(
                x.stride.get(result[-1], 0) == x.stride.get(axis, 0) * region.sizes[axis] for x in accesses
            ):
                major = result.pop()
                region.sizes[axis] *= region.sizes[major]
                for x in accesses:
                    x.stride.pop(major, None)
                region.dims = {v: [[a for a in d if a != major] for d in g] for v, g in region.dims.items()}
            result.append(axis)
        return result

    region.outer = merge(region.outer)
    region.inner = merge(region.inner)


def _check_types(region: Region) -> None:
    """Vectors hold float32 and masks; other types are one value per row."""
    lanes = region.mode == "lanes"
    for value in region.members:
        if value.dtype not in ("float32", "bool") and (lanes or region.is_full(value)):
            raise Incompatible(f"{value.dtype} in a vector")
        if value.kind == "pick" and lanes:
            raise Incompatible("a pick along a strided axis")
    for access in region.loads:
        if access.value.dtype not in ("float32", "bool", "int64"):
            raise Incompatible(f"load of {access.value.dtype}")
        if access.value.dtype == "int64" and (lanes or region.full_load(access)):
            raise Incompatible("int64 in a vector")
    for value in region.outputs:
        if value.dtype not in ("float32", "bool") or (value.dtype == "bool" and not region.is_full(value)):
            raise Incompatible(f"{value.dtype} output")
