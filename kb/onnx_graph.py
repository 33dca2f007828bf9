"""A writer of ONNX graphs, as far as an encoder needs it.

ONNX files are protocol buffers (onnx.proto3 of the ONNX specification) of which a few fields are enough here.
Writing those takes less than the package that describes them all; the runtime checks what it loads.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

FLOAT, INT64 = 1, 7  # TensorProto.DataType
_IR_VERSION = 8
_OPSETS = {"": 17, "com.microsoft": 1}  # the second: the runtime's own fused operators

Attribute = float | int | Sequence[int]


class Graph:
    """Nodes in order of computation; values are known by name. Weights are named only: `external` ones are
    handed to the session in memory.
    """

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []
        self._initializers: list[bytes] = []

    def input(self, name: str, shape: Sequence[str], kind: int) -> str:
        self._inputs.append(_value(name, shape, kind))
        return name

    def output(self, name: str, shape: Sequence[str], kind: int) -> None:
        self._outputs.append(_value(name, shape, kind))

    def external(self, name: str, shape: Sequence[int]) -> str:
        """A float weight that the session is given before it reads the graph."""
        location = _text(1, "location") + _text(2, "memory")
        tensor = _packed(1, shape) + _int(2, FLOAT) + _text(8, name) + _bytes(13, location) + _int(14, 1)
        self._initializers.append(tensor)
        return name

    def integers(self, name: str, values: Sequence[int]) -> str:
        """A small constant vector."""
        raw = b"".join(v.to_bytes(8, "little", signed=True) for v in values)
        self._initializers.append(
            _packed(1, [len(values)]) + _int(2, INT64) + _text(8, name) + _bytes(9, raw)
        )
        return name

    def node(
        self, op: str, inputs: Sequence[str], output: str, *, domain: str = "", **attributes: Attribute
    ) -> str:
        """Append `output = op(inputs)`; an input named "" is left out."""
        parts = [_text(1, name) for name in inputs] + [_text(2, output), _text(3, output), _text(4, op)]
        parts += [_bytes(5, _attribute(name, value)) for name, value in attributes.items()]
        self._nodes.append(b"".join(parts) + _text(7, domain))
        return output

    def to_bytes(self) -> bytes:
        """A ModelProto."""
        fields = {1: self._nodes, 5: self._initializers, 11: self._inputs, 12: self._outputs}
        graph = _text(2, "graph") + b"".join(_bytes(n, part) for n, parts in fields.items() for part in parts)
        opsets = b"".join(_bytes(8, _text(1, d) + _int(2, v)) for d, v in _OPSETS.items())
        return _int(1, _IR_VERSION) + _bytes(7, graph) + opsets


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        return _text(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _int(20, 1)
    if isinstance(value, int):
        return _text(1, name) + _int(3, value) + _int(20, 2)
    return _text(1, name) + _packed(8, value) + _int(20, 7)


def _value(name: str, shape: Sequence[str], kind: int) -> bytes:
    sizes = b"".join(_bytes(1, _int(1, int(s)) if s.isdigit() else _text(2, s)) for s in shape)
    return _text(1, name) + _bytes(2, _bytes(1, _int(1, kind) + _bytes(2, sizes)))


# --- protocol buffers: a field is its number and wire type, then its content ---


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers are ten bytes long
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _int(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, content: str) -> bytes:
    return _bytes(field, content.encode())


def _packed(field: int, values: Sequence[int]) -> bytes:
    return _bytes(field, b"".join(map(_varint, values)))
