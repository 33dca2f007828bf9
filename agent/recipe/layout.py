"""Where a value lies in memory: the buffer it is a view of, its offset and strides (in elements)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.recipe.graph import Value


@dataclass(frozen=True)
class Layout:
    buffer: Value
    offset: int
    strides: tuple[int, ...]


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(1, size)
    return tuple(strides)


def layout(value: Value) -> Layout:
    """The layout of a value that is computed outside a region.

    Buffers are contiguous: the candidate makes its inputs so. A reshape that no strides can express is a
    buffer of its own (torch copies there).
    """
    if value.kind != "view":
        return Layout(value, 0, contiguous(value.shape))
    (source,) = value.operands()
    base = layout(source)
    if value.fn == "permute":
        return Layout(base.buffer, base.offset, tuple(base.strides[p] for p in value.attrs["perm"]))
    if value.fn == "slice":
        dim, strides = value.attrs["dim"], list(base.strides)
        offset = base.offset + value.attrs["start"] * strides[dim]
        strides[dim] *= value.attrs["step"]
        return Layout(base.buffer, offset, tuple(strides))
    if value.fn == "expand":
        lead = len(value.shape) - len(source.shape)
        grown = [
            0 if i < lead or (source.shape[i - lead] == 1 and size != 1) else base.strides[i - lead]
            for i, size in enumerate(value.shape)
        ]
        return Layout(base.buffer, base.offset, tuple(grown))
    strides_or_none = _reshape(source.shape, base.strides, value.shape)
    if strides_or_none is None:
        return Layout(value, 0, contiguous(value.shape))
    return Layout(base.buffer, base.offset, strides_or_none)


def _reshape(shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of the reshaped view, or None where it needs a copy."""
    blocks: list[tuple[int, int]] = []  # (extent, stride) of runs that one stride walks, minor to major
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue
        if blocks and stride == blocks[-1][1] * blocks[-1][0]:
            blocks[-1] = (blocks[-1][0] * size, blocks[-1][1])
        else:
            blocks.append((size, stride))
    result: list[int] = []
    extent, stride = blocks.pop(0) if blocks else (1, 1)
    for size in reversed(wanted):
        if size == 1:
            result.insert(0, stride)
            continue
        if extent == 1 and blocks:
            extent, stride = blocks.pop(0)
        if extent % size:
            return None
        result.insert(0, stride)
        extent, stride = extent // size, stride * size
    return tuple(result)
