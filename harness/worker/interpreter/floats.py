"""Narrow floats for Triton's interpreter: bfloat16 and float8.

bfloat16: the interpreter computes on the raw 16 bits as if they were integers. Here a handle of type bfloat16
holds float32 numbers, each rounded to the nearest bfloat16 when the handle is made. That one invariant makes
every operator right: numpy computes in float32, and the result is rounded once, as a device does. Only what
sees bytes (loads, stores, atomics, bit casts) converts to 16 bits.

float8: its conversions round some per cent of the values wrongly. PyTorch's are used instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

_FLOAT8 = {
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}
_QUIET = np.uint32(0x0040_0000)


def rounded(values: Any) -> Any:
    """float32 numbers rounded to the nearest bfloat16, ties to even; NaN stays NaN."""
    wide = np.ascontiguousarray(values, dtype=np.float32)
    bits = wide.view(np.uint32)
    with np.errstate(over="ignore"):
        nearest = bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))
    nearest = np.where(np.isnan(wide), bits | _QUIET, nearest) & np.uint32(0xFFFF_0000)
    return nearest.view(np.float32).reshape(np.shape(values))


def truncated(values: Any) -> Any:
    """float32 numbers rounded to bfloat16 towards zero."""
    wide = np.ascontiguousarray(values, dtype=np.float32)
    bits = np.where(np.isnan(wide), wide.view(np.uint32) | _QUIET, wide.view(np.uint32))
    return (bits & np.uint32(0xFFFF_0000)).view(np.float32).reshape(np.shape(values))


def to_bits(values: Any) -> Any:
    """The 16 bits of each number."""
    wide = rounded(np.asarray(values).astype(np.float32))
    return (np.ascontiguousarray(wide).view(np.uint32) >> np.uint32(16)).astype(np.uint16).reshape(wide.shape)


def from_bits(bits: Any) -> Any:
    """The float32 numbers that 16-bit patterns stand for."""
    wide = np.ascontiguousarray(bits).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32).reshape(np.shape(bits))


def mend(interpreter: Any, tl: Any) -> None:
    """Installs this arithmetic in the module `triton.runtime.interpreter`. Once per process."""
    handle, builder = interpreter.TensorHandle, interpreter.InterpreterBuilder

    def is_bfloat16(dtype: Any) -> bool:
        return bool(dtype.scalar.name == "bf16")

    def points_to_bfloat16(pointers: Any) -> bool:
        return bool(pointers.get_element_ty().name == "bf16")

    _mend_float8(interpreter)
    _mend_handles(interpreter, tl, is_bfloat16)
    _mend_casts(interpreter, tl, is_bfloat16)
    load, store = builder.create_masked_load, builder.create_masked_store

    def masked_load(self: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
        if not points_to_bfloat16(ptrs):
            return load(self, ptrs, mask, other, *rest, **options)
        shape = ptrs.data.shape
        filled = np.zeros(shape, np.uint16) if other is None else to_bits(other.data)
        data = interpreter._interpreter.load(ptrs.data, mask.data, filled, np.dtype(np.uint16))
        return handle(from_bits(data), tl.bfloat16)

    def masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        if not points_to_bfloat16(ptrs):
            return store(self, ptrs, value, mask, *rest, **options)
        return interpreter._interpreter.store(ptrs.data, to_bits(value.data), mask.data)

    builder.create_masked_load, builder.create_masked_store = masked_load, masked_store
    _mend_atomics(interpreter, tl, points_to_bfloat16)


def to_float8(values: Any, dtype: torch.dtype) -> Any:
    """The 8 bits of each number; too large ones become the largest, as NVIDIA's conversions have it."""
    wide = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    limit = torch.finfo(dtype).max
    return wide.clamp(-limit, limit).to(dtype).view(torch.uint8).numpy().reshape(np.shape(values))


def from_float8(bits: Any, dtype: torch.dtype) -> Any:
    """The float32 numbers that 8-bit patterns stand for."""
    narrow = torch.from_numpy(np.array(bits, dtype=np.uint8)).view(dtype)
    return narrow.float().numpy()


def _mend_float8(interpreter: Any) -> None:
    convert, builder = interpreter._convert_float, interpreter.InterpreterBuilder
    cast, toward_zero = builder.cast_impl, interpreter._ir.ROUNDING_MODE.RTZ

    def convert_float(values: Any, source: Any, target: Any, rounding_mode: Any) -> Any:
        """Bits of the target type as unsigned integers."""
        known = source.name in _FLOAT8, target.name in _FLOAT8
        if not any(known) or (known[1] and rounding_mode == toward_zero):
            return convert(values, source, target, rounding_mode)
        wide = from_float8(values, _FLOAT8[source.name]) if known[0] else values
        if known[1]:
            return to_float8(wide, _FLOAT8[target.name])
        return wide.astype(interpreter._get_np_dtype(target)).view(f"uint{target.primitive_bitwidth}")

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        if dst_type.scalar.name in _FLOAT8 and src.dtype.scalar.is_floating():
            return self.create_fp_to_fp(src, dst_type, None)
        return cast(self, src, dst_type)

    interpreter._convert_float, builder.cast_impl = convert_float, cast_impl


def _mend_handles(interpreter: Any, tl: Any, is_bfloat16: Any) -> None:
    handle = interpreter.TensorHandle
    numpy_type, make, fits = (
        interpreter._get_np_dtype,
        handle.__init__,
        getattr(interpreter, "_validate_np_data_size", None),
    )

    types = {"bf16": np.dtype(np.float32)}  # also a cache: the interpreter builds its table in every call

    def get_np_dtype(dtype: Any) -> Any:
        name = dtype.scalar.name
        if name not in types:
            types[name] = numpy_type(dtype)
        return types[name]

    def init(self: Any, data: Any, dtype: Any, *rest: Any, **more: Any) -> None:
        if is_bfloat16(dtype) and data.dtype in (np.float16, np.float32, np.float64):
            data = rounded(data)
        make(self, data, dtype, *rest, **more)

    interpreter._get_np_dtype, handle.__init__ = get_np_dtype, init
    if fits is not None:  # since 3.6
        interpreter._validate_np_data_size = lambda data, dtype: (
            data.itemsize <= 4 if is_bfloat16(dtype) else fits(data, dtype)
        )
    builder = interpreter.InterpreterBuilder
    builder.get_bf16 = lambda _, value: handle(np.array([value], dtype=np.float32), tl.bfloat16)


def _mend_casts(interpreter: Any, tl: Any, is_bfloat16: Any) -> None:
    handle, builder = interpreter.TensorHandle, interpreter.InterpreterBuilder
    cast, between, bitcast, absolute = (
        builder.cast_impl,
        builder.create_fp_to_fp,
        builder.create_bitcast,
        builder.create_fabs,
    )
    toward_zero = interpreter._ir.ROUNDING_MODE.RTZ

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        if not (is_bfloat16(src.dtype) or is_bfloat16(dst_type)):
            return cast(self, src, dst_type)
        return handle(src.data.astype(interpreter._get_np_dtype(dst_type)), dst_type.scalar)

    def fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        if is_bfloat16(src.dtype):  # exact as float32
            if dst_type.scalar.primitive_bitwidth >= 32:
                return cast_impl(self, src, dst_type)
            return fp_to_fp(self, handle(src.data, tl.float32), dst_type, rounding_mode)
        if is_bfloat16(dst_type):
            if src.dtype.scalar.primitive_bitwidth == 8:
                src = between(self, src, tl.float32, rounding_mode)
            data = src.data.astype(np.float32)
            return handle(truncated(data) if rounding_mode == toward_zero else data, tl.bfloat16)
        return between(self, src, dst_type, rounding_mode)

    def create_bitcast(self: Any, src: Any, dst_type: Any) -> Any:
        if is_bfloat16(src.dtype) == is_bfloat16(dst_type):
            return src if is_bfloat16(dst_type) else bitcast(self, src, dst_type)
        if is_bfloat16(src.dtype):
            return handle(to_bits(src.data).view(interpreter._get_np_dtype(dst_type)), dst_type.scalar)
        return handle(from_bits(src.data.view(np.uint16)), tl.bfloat16)

    def create_fabs(self: Any, arg: Any) -> Any:
        return handle(np.abs(arg.data), tl.bfloat16) if is_bfloat16(arg.dtype) else absolute(self, arg)

    builder.cast_impl, builder.create_fp_to_fp = cast_impl, fp_to_fp
    builder.create_bitcast, builder.create_fabs = create_bitcast, create_fabs


def _mend_atomics(interpreter: Any, tl: Any, points_to_bfloat16: Any) -> None:
    handle, builder = interpreter.TensorHandle, interpreter.InterpreterBuilder
    native = interpreter._interpreter
    modify, compare = builder.create_atomic_rmw, builder.create_atomic_cas

    def atomic_rmw(self: Any, op: Any, ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
        if not points_to_bfloat16(ptr):
            return modify(self, op, ptr, val, mask, *rest)
        if op not in (interpreter._ir.ATOMIC_OP.FADD, interpreter._ir.ATOMIC_OP.XCHG):
            raise ValueError(f"no atomic {op} of bfloat16")
        # One lane after another: several may have the same address.
        old = np.zeros(ptr.data.size, dtype=np.float32)
        lanes = zip(ptr.data.ravel(), val.data.ravel(), np.ravel(mask.data), strict=True)
        for i, (address, value, active) in enumerate(lanes):
            if not active:
                continue
            where, yes = np.array([address], dtype=np.uint64), np.ones(1, dtype=bool)
            found = native.load(where, yes, np.zeros(1, np.uint16), np.dtype(np.uint16))
            old[i] = from_bits(found)[0]
            new = value if op == interpreter._ir.ATOMIC_OP.XCHG else old[i] + value
            native.store(where, to_bits(np.array([new], dtype=np.float32)), yes)
        return handle(old.reshape(ptr.data.shape), tl.bfloat16)

    def atomic_cas(self: Any, ptr: Any, cmp: Any, val: Any, *rest: Any) -> Any:
        if not points_to_bfloat16(ptr):
            return compare(self, ptr, cmp, val, *rest)
        bits = [handle(to_bits(h.data), tl.uint16) for h in (cmp, val)]
        return handle(from_bits(compare(self, ptr, *bits, *rest).data), tl.bfloat16)

    builder.create_atomic_rmw, builder.create_atomic_cas = atomic_rmw, atomic_cas
