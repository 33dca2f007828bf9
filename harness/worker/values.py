"""Arguments and results as plain JSON structures with numbered tensors, and tensors as bytes in shared
memory.

A structure is `{"t": i}` for tensor number i, `{"v": x}` for a plain value, `{"list"|"tuple": [...]}` or
`{"dict": [[key, structure], ...]}`. A layout entry says where in a region a tensor lies:
`{"dtype", "shape", "stride", "offset", "span"}`, offset in bytes, stride and span in elements.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections import OrderedDict
from typing import Any

import torch

from harness.worker.device.driver import create_memory, map_memory

ALIGNMENT = 256
SEALS = (
    0x0001 | 0x0002 | 0x0004
)  # F_SEAL_SEAL, _SHRINK, _GROW: a child cannot pull the memory from under the judge
_F_ADD_SEALS = 1033

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
        *(getattr(torch, n) for n in ("uint16", "uint32", "uint64") if hasattr(torch, n)),
        *(getattr(torch, n) for n in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, n)),
    )
}

_KEYS = (str, int, float, bool, type(None))


class Unsupported(Exception):
    """A value that cannot travel between the judge and its children."""


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def pack(value: Any, like: Any = None) -> tuple[Any, list[torch.Tensor]]:
    """The structure of `value` and its tensors in order; raises Unsupported.

    Equal dictionaries may list their keys in another order: that of `like`, a structure or skeleton, is taken
    where the keys are the same.
    """
    tensors: list[torch.Tensor] = []
    return _pack(value, tensors, like or {}), tensors


def _pack(value: Any, tensors: list[torch.Tensor], like: dict[str, Any]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"t": len(tensors) - 1}
    if value is None or isinstance(value, bool | int | float | str):
        return {"v": value}
    if isinstance(value, torch.dtype):
        return {"dtype": dtype_name(value)}
    is_tuple = isinstance(value, tuple) and type(value).__iter__ is tuple.__iter__  # named ones, too
    if type(value) is list or is_tuple:
        kind = "tuple" if is_tuple else "list"
        inner = like.get(kind, ())
        inner = inner if len(inner) == len(value) else [{}] * len(value)
        return {kind: [_pack(v, tensors, s) for v, s in zip(value, inner, strict=True)]}
    if type(value) in (dict, OrderedDict):  # others may compute what they hold when they are looked at
        if any(type(key) not in _KEYS for key in value):  # others may compute something when compared
            raise Unsupported("a dictionary with keys other than plain names and numbers is not supported")
        known = dict(like.get("dict", ()))
        keys = known if known.keys() == value.keys() else value
        return {"dict": [[key, _pack(value[key], tensors, known.get(key, {}))] for key in keys]}
    raise Unsupported(f"a value of type {type(value).__name__} is not supported")


def unpack(structure: Any, tensors: list[torch.Tensor]) -> Any:
    """The inverse of `pack`."""
    ((kind, body),) = structure.items()
    if kind == "t":
        return tensors[body]
    if kind == "dtype":
        return DTYPES[body]
    if kind == "list":
        return [unpack(s, tensors) for s in body]
    if kind == "tuple":
        return tuple(unpack(s, tensors) for s in body)
    if kind == "dict":
        return {key: unpack(s, tensors) for key, s in body}
    return body


def skeleton(structure: Any) -> Any:
    """The structure with its plain values replaced by their types."""
    ((kind, body),) = structure.items()
    if kind == "v":
        return {"v": type(body).__name__}
    if kind in ("list", "tuple"):
        return {kind: [skeleton(s) for s in body]}
    if kind == "dict":
        return {"dict": [[key, skeleton(s)] for key, s in body]}
    return structure


def plain_values(structure: Any) -> list[Any]:
    """The plain values of a structure in order."""
    ((kind, body),) = structure.items()
    if kind == "v":
        return [body]
    if kind in ("list", "tuple"):
        return [v for s in body for v in plain_values(s)]
    if kind == "dict":
        return [v for _, s in body for v in plain_values(s)]
    return []


def describe_layout(tensors: list[torch.Tensor], *, contiguous: bool) -> list[dict[str, Any]]:
    """Places for these tensors in one region; `contiguous` drops their strides. Raises Unsupported."""
    layout, offset = [], 0
    for tensor in tensors:
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise Unsupported(f"a {tensor.layout} or quantised tensor is not supported")
        if dtype_name(tensor.dtype) not in DTYPES:
            raise Unsupported(f"dtype {tensor.dtype} is not supported")
        shape = list(tensor.shape)
        stride = _contiguous_stride(shape) if contiguous else list(tensor.stride())
        span = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
        layout.append(
            {
                "dtype": dtype_name(tensor.dtype),
                "shape": shape,
                "stride": stride,
                "offset": offset,
                "span": span,
            }
        )
        offset += -(-span * tensor.element_size() // ALIGNMENT) * ALIGNMENT + ALIGNMENT
    return layout


def layout_bytes(layout: list[dict[str, Any]]) -> int:
    """Size in bytes of a region that holds this layout (at least one page)."""
    if not layout:
        return mmap.PAGESIZE
    last = layout[-1]
    return max(mmap.PAGESIZE, int(last["offset"] + last["span"] * DTYPES[last["dtype"]].itemsize) + ALIGNMENT)


def _contiguous_stride(shape: list[int]) -> list[int]:
    stride, step = [], 1
    for n in reversed(shape):
        stride.append(step)
        step *= max(n, 1)
    return stride[::-1]


class Region:
    """A piece of memory shared with one child: a sealed memfd, or memory of a device behind a descriptor."""

    def __init__(self, fd: int, size: int, device: str = "cpu") -> None:
        self.fd, self.size = fd, size
        self._map = mmap.mmap(fd, size) if device == "cpu" else None
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8) if self._map else map_memory(fd, size)

    @classmethod
    def create(cls, size: int, device: str = "cpu") -> Region:
        if device != "cpu":
            return cls(*create_memory(size), device)
        fd = os.memfd_create("region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, _F_ADD_SEALS, SEALS)
        return cls(fd, size)

    def flat(self, entry: dict[str, Any]) -> torch.Tensor:
        """The memory behind one layout entry as a vector of its dtype."""
        dtype = DTYPES[entry["dtype"]]
        if entry["span"] == 0:
            return torch.empty(0, dtype=dtype, device=self._bytes.device)
        start = entry["offset"]
        if self._map:  # each tensor is a storage of its own: what lies beyond it is out of bounds
            return torch.frombuffer(self._map, dtype=dtype, count=entry["span"], offset=start)
        return self._bytes[start : start + entry["span"] * dtype.itemsize].view(dtype)

    def view(self, entry: dict[str, Any]) -> torch.Tensor:
        """The tensor at one layout entry, sharing memory with the region."""
        if entry["span"] == 0:
            return torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]], device=self._bytes.device)
        return self.flat(entry).as_strided(entry["shape"], entry["stride"])

    def views(self, layout: list[dict[str, Any]]) -> list[torch.Tensor]:
        return [self.view(entry) for entry in layout]

    def write(self, layout: list[dict[str, Any]], tensors: list[torch.Tensor]) -> None:
        """Copies tensors into their places. Overlapping memory (stride 0) is written once, as it lies."""
        for entry, tensor in zip(layout, tensors, strict=True):
            if entry["span"] == 0:
                continue
            source = tensor.detach()
            if entry["stride"] == list(source.stride()):
                self.flat(entry).copy_(source.as_strided((entry["span"],), (1,), source.storage_offset()))
            else:
                self.view(entry).copy_(source)
