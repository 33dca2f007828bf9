"""Axes of an iteration domain: dimensions are lists of axes that are split and identified until all tensors
agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

Axes = list[int]


class Incompatible(Exception):
    """The tensors cannot share one iteration domain."""


@dataclass
class Space:
    """Axis sizes, and what has replaced an axis: its parts after a split, or the axis it was
    identified with.
    """

    sizes: dict[int, int] = field(default_factory=dict)
    _parts: dict[int, Axes] = field(default_factory=dict)

    def fresh(self, size: int) -> Axes:
        """The axes of a dimension: none for size 1."""
        if size == 1:
            return []
        axis = len(self.sizes)
        self.sizes[axis] = size
        return [axis]

    def resolve(self, axes: Sequence[int]) -> Axes:
        result: Axes = []
        for axis in axes:
            result.extend(self.resolve(self._parts[axis]) if axis in self._parts else [axis])
        return result

    def extent(self, axes: Sequence[int]) -> int:
        return prod(self.sizes[a] for a in self.resolve(axes))

    def split(self, axis: int, inner: int) -> Axes:
        """Replaces `axis` by an outer part and an inner one of size `inner`."""
        size = self.sizes[axis]
        if size % inner:
            raise Incompatible(f"{size} is not a multiple of {inner}")
        self._parts[axis] = self.fresh(size // inner) + self.fresh(inner)
        return self._parts[axis]

    def unify(self, first: Sequence[int], second: Sequence[int]) -> None:
        """Makes two dimensions of equal extent one and the same, splitting axes where needed."""
        left, right = self.resolve(first), self.resolve(second)
        while left and right:
            a, b = left[-1], right[-1]
            if a == b:
                left.pop(), right.pop()
                continue
            size_a, size_b = self.sizes[a], self.sizes[b]
            if size_a == size_b:
                self._parts[b] = [a]
            elif size_a > size_b:
                self.split(a, size_b)
            else:
                self.split(b, size_a)
            left, right = self.resolve(left), self.resolve(right)
        if left or right:
            raise Incompatible("dimensions of different extent")

    def regroup(self, axes: Sequence[int], shape: Sequence[int]) -> list[Axes]:
        """Distributes axes (major to minor) over the dimensions of `shape`, splitting where needed."""
        rest = self.resolve(axes)
        groups: list[Axes] = []
        for size in reversed(shape):
            group: Axes = []
            need = size
            while need > 1:
                if not rest:
                    raise Incompatible("reshape changes the number of elements")
                last = self.sizes[rest[-1]]
                if last > need:
                    rest[-1:] = self.split(rest[-1], need)
                    last = need
                elif need % last:
                    raise Incompatible("reshape cuts across dimensions")
                group.insert(0, rest.pop())
                need //= last
            groups.insert(0, group)
        if rest:
            raise Incompatible("reshape changes the number of elements")
        return groups

    def strides(self, axes: Sequence[int], stride: int) -> dict[int, int]:
        """Strides of the resolved axes of a dimension that has stride `stride`."""
        table: dict[int, int] = {}
        for axis in reversed(self.resolve(axes)):
            table[axis] = table.get(axis, 0) + stride
            stride *= self.sizes[axis]
        return table
