"""Tensors of an absent device handed on by DLPack: their description is right, their address leads nowhere.

Structures: DLPack, `dlpack.h` (DLManagedTensor).
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

CUDA = (2, 0)  # kDLCUDA, the first device


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype, _pointer_in.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_kept: list[Any] = []  # a consumer may look at the sizes as long as it likes


def capsule(tensor: torch.Tensor, address: int) -> Any:
    """What `Tensor.__dlpack__` of a tensor on `cuda:0` gives. Raises BufferError as torch does."""
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    # One of the host tells how this dtype is written; the rest is overwritten.
    made = torch.zeros(1, dtype=tensor.dtype).__dlpack__()
    described = _Tensor.from_address(_pointer_in(made, b"dltensor"))
    sizes = ctypes.c_int64 * max(tensor.dim(), 1)
    shape, strides = sizes(*tensor.shape), sizes(*tensor.stride())
    _kept.append((shape, strides))
    described.data, described.byte_offset = address, 0
    described.device_type, described.device_id = CUDA
    described.dimensions = tensor.dim()
    described.shape, described.strides = shape, strides
    return made
