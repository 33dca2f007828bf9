"""Greedy maximal fusion: which values share a kernel, within the boundaries that a genome sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agent.recipe.axes import Incompatible
from agent.recipe.graph import Program, Value
from agent.recipe.region import Region, analyse

COMPUTE = ("map", "reduce", "pick")


@dataclass(eq=False)
class Group:
    """Values that one kernel computes. `borrowed` ones are computed again by whoever else needs them."""

    values: list[Value]
    borrowed: list[Value]


@dataclass(frozen=True)
class Step:
    """One line of the candidate's forward: an ATen call (`value`) or a kernel (`region`)."""

    value: Value | None = None
    region: Region | None = None


def base(value: Value) -> Value:
    """What a chain of views looks at."""
    while value.kind == "view":
        (value,) = value.operands()
    return value


def _chain(value: Value) -> Iterator[Value]:
    """The views between `value` and what they look at."""
    while value.kind == "view":
        yield value
        (value,) = value.operands()


class Partition:
    """Assigns the program's computed values to groups. `cuts` names values whose consumers must read
    memory.
    """

    def __init__(self, program: Program, cuts: Iterable[str] = ()) -> None:
        self.program = program
        self.cuts = frozenset(cuts)
        self.order = {v: i for i, v in enumerate(program.values)}
        self.users = program.users()
        self.outputs = {base(v) for v in program.output_values()}
        self.group: dict[Value, Group] = {}
        for value in program.values:
            if value.kind in COMPUTE:
                self._place(value)
        self._join_siblings()

    def regions(self) -> list[Region]:
        return [self.region(g) for g in dict.fromkeys(self.group.values())]

    def region(self, group: Group) -> Region:
        return self._analyse(group.values, group.borrowed)

    def boundaries(self) -> list[str]:
        """Values inside groups at which a cut would be possible, most central first."""
        inner: list[tuple[int, str]] = []
        for group in dict.fromkeys(self.group.values()):
            half = len(group.values) / 2
            for position, value in enumerate(group.values):
                if value.dtype == "float32" and value.numel > 1 and position + 1 < len(group.values):
                    inner.append((int(abs(position + 1 - half)), value.name))
        return [name for _, name in sorted(inner)]

    def steps(self) -> list[Step]:
        """Kernels and ATen calls in an order that respects their dependences."""
        regions = {g: self.region(g) for g in dict.fromkeys(self.group.values())}
        done: set[Value] = set()
        result: list[Step] = []

        def visit(value: Value) -> None:
            value = base(value)
            if value in done or value.kind in ("input", "state", "constant"):
                return
            group = self.group.get(value)
            if group is None:
                done.add(value)
                for operand in value.operands():
                    visit(operand)
                result.append(Step(value=value))
                return
            done.update(group.values)
            region = regions[group]
            for access in region.loads:
                visit(access.value)
            result.append(Step(region=region))

        for value in self.program.output_values():
            visit(value)
        return result

    def _place(self, value: Value) -> None:
        neighbours = [self.group[o] for o in map(base, value.operands()) if o in self.group]
        groups = sorted(dict.fromkeys(neighbours), key=lambda g: -len(g.values))
        attempts = [groups] if len(groups) != 1 else []
        for choice in [*attempts, *([g] for g in groups), []] if groups else [[]]:
            if self._join(value, choice):
                return

    def _join(self, value: Value, groups: list[Group]) -> bool:
        values = self._sorted([value, *(v for g in groups for v in g.values)])
        borrowed = [v for g in groups for v in g.borrowed]
        lent = list(self._unplaced(value))
        for extra in ([lent] if lent else []) + [[]]:
            candidate = Group(values, self._sorted({*borrowed, *extra} - set(values)))
            if not self._crosses_a_cut(candidate) and self._acyclic(candidate):
                try:
                    self._analyse(candidate.values, candidate.borrowed)
                except Incompatible:
                    continue
                for member in values:
                    self.group[member] = candidate
                return True
        return False

    def _join_siblings(self) -> None:
        """Merges groups that read the same tensor and could walk it together: it is then read once."""
        merged = True
        while merged:
            groups = list(dict.fromkeys(self.group.values()))
            merged = any(
                self._merge(a, b)
                for i, a in enumerate(groups)
                for b in groups[i + 1 :]
                if self._sources(a) & self._sources(b)
            )

    def _sources(self, group: Group) -> set[Value]:
        """The tensors that a group reads in full, as far as they matter."""
        found = {base(o) for v in group.values for o in v.operands()} - set(group.values)
        largest = max((v.numel for v in (*found, *group.values)), default=0)
        return {v for v in found if v.numel == largest and v.name not in self.cuts}

    def _merge(self, first: Group, second: Group) -> bool:
        values = self._sorted([*first.values, *second.values])
        candidate = Group(values, self._sorted({*first.borrowed, *second.borrowed} - set(values)))
        if self._crosses_a_cut(candidate) or not self._acyclic(candidate):
            return False
        try:
            region = self._analyse(candidate.values, candidate.borrowed)
        except Incompatible:
            return False
        if region.rows * region.cols > max(v.numel for v in self._sources(first)):
            return False  # they would not walk it together
        self.group.update(dict.fromkeys(values, candidate))
        return True

    def _crosses_a_cut(self, group: Group) -> bool:
        inside = set(group.values)
        return any(o.name in self.cuts and o in inside for v in group.values for o in map(base, v.operands()))

    def _unplaced(self, value: Value) -> Iterator[Value]:
        """Cheap maps in front of `value` that no group could take (integer and mask arithmetic)."""
        for operand in value.operands():
            source = base(operand)
            if source.kind == "map" and source not in self.group:
                yield from self._unplaced(source)
                yield source

    def _sorted(self, values: Iterable[Value]) -> list[Value]:
        return sorted(set(values), key=self.order.__getitem__)

    def _analyse(self, values: list[Value], borrowed: list[Value]) -> Region:
        inside = {*values, *borrowed}
        views: set[Value] = set()
        for value in inside:
            for operand in value.operands():
                if base(operand) in inside:
                    views.update(_chain(operand))
        left = [v for v in values if v in self.outputs or self._leaves(v, inside | views)]
        return analyse(self._sorted(inside | views), left)

    def _leaves(self, value: Value, inside: set[Value]) -> bool:
        """Whether someone outside reads `value`, directly or through views that stay outside."""
        for user in self.users[value]:
            if user.kind == "view":
                if self._leaves(user, inside):
                    return True
            elif user not in inside:
                return True
        return False

    def _acyclic(self, candidate: Group) -> bool:
        """Whether the groups can still run one after another with `candidate` as one of them."""
        group = {**self.group, **dict.fromkeys(candidate.values, candidate)}
        state: dict[object, int] = {}

        def visit(node: object) -> bool:
            if state.get(node) == 1:
                return False
            if state.get(node) == 2:
                return True
            state[node] = 1
            members = [*node.values, *node.borrowed] if isinstance(node, Group) else [node]
            for member in members:
                assert isinstance(member, Value)
                for operand in map(base, member.operands()):
                    target: object = group.get(operand, operand)
                    if operand in members or target is node:
                        continue
                    if not visit(target):
                        return False
            state[node] = 2
            return True

        return visit(candidate)
