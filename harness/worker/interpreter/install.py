"""Triton's interpreter mended: what it computes wrongly is put right, what it lets pass is found.

`install` changes the interpreter of this process (only ever a candidate's child): narrow floats are right
(`interpreter_floats`), accesses out of bounds and races between programs end the call
(`interpreter_memory`), the programs of a launch run in random order (`interpreter_grid`), and autotuned
kernels take another configuration at every launch, so that a verdict covers them. Triton 3.5 to 3.7.

Not modelled: limits of shared memory and registers, races within a program, products in reduced precision
(`input_precision`), and speed.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

UNCHECKED = (
    "out-of-bounds accesses and races between programs were looked for; limits of shared memory and "
    "registers, races within a program, reduced precision of tl.dot (TF32) and speed were not"
)


class Findings:
    """What the kernels of this process did wrong first, and which configurations have run."""

    def __init__(self) -> None:
        self.fault: BaseException | None = None
        self.launch: Any = None
        self.grid: Any = None
        self.launches = 0
        self.patched: set[int] = set()  # modules whose view of the language the launch has replaced
        self.runs: dict[Any, dict[str, int]] = {}  # by autotuner and configuration

    def checked(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Calls `forward` and raises what a kernel did wrong, even where the caller went on after it."""

        def call(*arguments: Any) -> Any:
            try:
                return forward(*arguments)
            finally:
                if self.fault is not None:
                    raise self.fault

        return call

    def configurations(self) -> dict[str, int]:
        """How many configurations autotuned kernels have, and how many of them have not run yet."""
        counts = [runs for of_tuner in self.runs.values() for runs in of_tuner.values()]
        return {"total": len(counts), "left": sum(runs == 0 for runs in counts)}


FINDINGS = Findings()


def install() -> None:
    """Mends the interpreter, once per process; does nothing where there is no Triton."""
    try:
        import triton.language as tl
        from triton.runtime import autotuner, interpreter
    except ImportError:
        return
    from harness.worker.interpreter import floats as interpreter_floats

    interpreter_floats.mend(interpreter, tl)
    _mend_indices(interpreter)
    _patch_once(interpreter)
    _watch_launches(interpreter)
    _watch_memory(interpreter)
    _rotate_configurations(autotuner)


def _mend_indices(interpreter: Any) -> None:
    """Loop bounds: recent numpy makes no `int` of an array of one element; Triton before 3.7 wants that."""
    patch = interpreter._patch_lang_tensor

    def patch_tensor(tensor: Any, *scope: Any) -> None:
        patch(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patch_tensor


def _patch_once(interpreter: Any) -> None:
    """Replaces the language once in a launch and module, not in every call of a device function (`tl.sum`
    is one): that alone takes half the time of small kernels.
    """
    patch = interpreter._patch_lang

    def patch_lang(fn: Any) -> Any:
        module = id(fn.__globals__)
        if module in FINDINGS.patched:
            return None  # only a launch, which comes first, restores what it has replaced
        FINDINGS.patched.add(module)
        return patch(fn)

    interpreter._patch_lang = patch_lang


def _watch_launches(interpreter: Any) -> None:
    from harness.worker.interpreter.grid import Grid
    from harness.worker.interpreter.memory import Fault, Launch

    builder, executor = interpreter.interpreter_builder, interpreter.GridExecutor
    launch, arguments = executor.__call__, executor._init_args_hst

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        outer = FINDINGS.launch, FINDINGS.grid
        FINDINGS.patched.clear()
        size = self.grid

        def run(values: dict[str, Any]) -> tuple[int]:
            """Called for the size of the grid, with everything prepared: runs all there is."""
            whole = tuple(size(values) if callable(size) else size)
            assert len(whole) <= 3, "grid must have at most 3 dimensions"
            whole += (1,) * (3 - len(whole))
            builder.set_grid_dim(*whole)
            FINDINGS.grid = Grid(
                FINDINGS.launch,
                whole,
                lambda program: builder.set_grid_idx(*program),
                lambda: self.fn(**values),
            )
            FINDINGS.launches += 1
            # Reproducible under the seed of the call; torch's own generator is not advanced.
            FINDINGS.grid.run(random.Random(torch.initial_seed() + FINDINGS.launches))
            return (0,)

        self.grid = run
        try:
            return launch(self, *args, **kwargs)
        except Fault as fault:
            FINDINGS.fault = FINDINGS.fault or fault
            raise
        finally:
            FINDINGS.launch, FINDINGS.grid = outer

    def host_arguments(self: Any, args: Any, kwargs: Any) -> Any:
        ours = arguments(self, args, kwargs)
        named = [*zip(self.arg_names, ours[0], strict=False), *ours[1].items()]
        words = [value for _, value in named if type(value) is int]
        tensors = [(name, tensor) for name, value in named for tensor in _tensors(value)]
        FINDINGS.launch = Launch(self.fn.__name__, read, lambda address: _pointed_to(address, tensors, words))
        for name, tensor in tensors:
            FINDINGS.launch.add(_storage(name, tensor))
        return ours

    def read(addresses: Any, size: int) -> Any:
        integer = interpreter.np.dtype(f"uint{8 * size}")
        yes = interpreter.np.ones(addresses.shape, dtype=bool)
        other = interpreter.np.zeros(addresses.shape, dtype=integer)
        return interpreter._interpreter.load(addresses, yes, other, integer)

    executor.__call__, executor._init_args_hst = call, host_arguments


def _watch_memory(interpreter: Any) -> None:
    builder = interpreter.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store
    modify, compare = builder.create_atomic_rmw, builder.create_atomic_cas
    orders = interpreter._ir.MEM_SEMANTIC
    acquiring = (orders.ACQUIRE, orders.ACQUIRE_RELEASE)
    releasing = (orders.RELEASE, orders.ACQUIRE_RELEASE)

    def masked_load(self: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **more: Any) -> Any:
        volatile = more.get("is_volatile", rest[2] if len(rest) > 2 else False)
        _look(ptrs)
        if volatile:
            FINDINGS.launch.atomic(ptrs.data, _array(mask), _width(ptrs), acquire=True, release=False)
        else:
            FINDINGS.launch.load(ptrs.data, _array(mask), _width(ptrs))
        return load(self, ptrs, mask, other, *rest, **more)

    def masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any, **more: Any) -> None:
        def perform() -> None:
            store(self, ptrs, value, mask, *rest, **more)

        FINDINGS.grid.move()
        FINDINGS.launch.store(ptrs.data, _array(mask), _width(ptrs), perform)

    def atomic_rmw(self: Any, op: Any, ptr: Any, val: Any, mask: Any, *order: Any) -> Any:
        _atomic(ptr, _array(mask), order[0])
        return modify(self, op, ptr, val, mask, *order)

    def atomic_cas(self: Any, ptr: Any, *rest: Any) -> Any:
        _atomic(ptr, True, rest[2])
        return compare(self, ptr, *rest)

    def _atomic(ptr: Any, mask: Any, sem: Any) -> None:
        _look(ptr)
        order = {"acquire": sem in acquiring, "release": sem in releasing}
        FINDINGS.launch.atomic(ptr.data, mask, _width(ptr), **order)

    builder.create_masked_load, builder.create_masked_store = masked_load, masked_store
    builder.create_atomic_rmw, builder.create_atomic_cas = atomic_rmw, atomic_cas


def _rotate_configurations(autotuner: Any) -> None:
    run = autotuner.Autotuner.run

    def rotate(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(self.configs) < 2:
            return run(self, *args, **kwargs)
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        allowed = {str(config): config for config in self.prune_configs(kwargs)}
        runs = FINDINGS.runs.setdefault(self, {})
        runs.update({name: runs.get(name, 0) for name in allowed})
        chosen = min(allowed, key=lambda name: runs[name])
        runs[chosen] += 1
        every, self.configs = self.configs, [allowed[chosen]]
        try:
            return run(self, *args, **kwargs)
        finally:
            self.configs = every

    autotuner.Autotuner.run = rotate


def _look(pointers: Any) -> None:
    if pointers.data.size == 1:
        FINDINGS.grid.look(int(pointers.data.item()))
    else:
        FINDINGS.grid.move()


def _width(pointers: Any) -> int:
    return max(1, int(pointers.get_element_ty().primitive_bitwidth) // 8)


def _array(mask: Any) -> Any:
    """Masks are handles, except those of block pointers and descriptors."""
    return mask.data if hasattr(mask, "dtype") and hasattr(mask, "get_element_ty") else mask


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """An argument itself, the base of a descriptor or a reinterpreted tensor, or what a tuple holds."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif isinstance(getattr(value, "base", None), torch.Tensor):
        yield value.base


def _storage(name: str, tensor: torch.Tensor) -> Any:
    from harness.worker.interpreter.memory import Storage

    memory = tensor.untyped_storage()
    return Storage(memory.data_ptr(), memory.data_ptr() + memory.nbytes(), name, tensor.element_size())


def _pointed_to(address: int, tensors: list[tuple[str, torch.Tensor]], words: list[int]) -> Any:
    """Memory that a launch gets by address instead of as a tensor: pointers among its integers."""
    known = {*words}
    for _, tensor in tensors:
        if tensor.dtype in (torch.int64, torch.uint64):
            known.update(tensor.flatten().tolist())
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor) and thing.layout is torch.strided:
            memory = _storage("memory passed by address", thing)
            if memory.start <= address < memory.end and any(memory.start <= w < memory.end for w in known):
                return memory
    return None
