"""In the candidate's child: counts, times and switches off the candidate's own kernels.

What counts as its own: Triton kernels (interpreted or compiled, Inductor's too), functions of the CuTe DSL,
functions of libraries that it loaded through ctypes from its folder (as `harness.native` does) or as
extension modules, launches of a driver's library, and operators registered outside of torch's namespaces.
They are caught where every caller has to pass (a method of the kernel's class): the name under which a
candidate keeps a kernel does not matter.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.worker.evidence import cute
from harness.worker.evidence.integrity import defined_in
from harness.worker.evidence.kernel_names import operator_kind
from harness.worker.jail.places import Places

Mode = Literal["count", "skip"]
_DRIVER_LAUNCHES = (
    "cuLaunchKernel",
    "cudaLaunchKernel",
    "hipModuleLaunchKernel",
    "hipLaunchKernel",
    "cuLaunchKernelEx",
)


_TORCH = f"{Path(torch.__file__).parent}/"


@dataclass
class Loaded:
    """The classes of foreign functions and the extension modules that there are in this process."""

    libraries: list[ctypes.CDLL]
    extensions: list[types.ModuleType]

    @classmethod
    def find(cls, places: Places) -> Loaded:
        """Takes some 0.05 s: every object is looked at."""
        found = cls([], [])
        for thing in gc.get_objects():
            kind = type(thing)
            if issubclass(kind, ctypes.CDLL):
                if "_FuncPtr" in vars(thing):
                    found.libraries.append(thing)
            elif issubclass(kind, types.ModuleType):
                file = str(vars(thing).get("__file__") or "")
                if file.endswith(".so") and file in places:
                    found.extensions.append(thing)
        return found


class Launches:
    """Own kernels while a forward runs. `complete` is False where some of them could not be reached."""

    def __init__(self, places: Places, loaded: Loaded) -> None:
        self.places = places
        self.loaded = loaded
        self.attempted = self.failed = 0
        self.seconds = 0.0
        self.complete = True
        self.names: dict[str, int] = {}
        self._mode: Mode = "count"
        self._depth = 0
        self._undo: list[Callable[[], None]] = []

    @contextmanager
    def watched(self, mode: Mode) -> Iterator[None]:
        """Within it, launches are counted and timed, or have no effect."""
        self._mode = mode
        try:
            self._triton()
            self._cute()
            self._ctypes()
            self._extensions()
            with self._operators():
                yield
        finally:
            while self._undo:
                self._undo.pop()()

    def counts(self) -> dict[str, Any]:
        return {
            "attempted": self.attempted,
            "failed": self.failed,
            "complete": self.complete,
            "seconds": self.seconds,
            "names": [str(name)[:80] for name in self.names][:16],
        }

    # -- one launch ------------------------------------------------------------------------------------

    def _launch(self, name: str, real: Callable[[], Any], skipped: Callable[[], Any]) -> Any:
        """Runs one launch, or what stands for it; a launch within a launch is part of it."""
        if self._depth:
            return real()
        self._depth += 1
        self.attempted += 1
        self.names[name] = self.names.get(name, 0) + 1
        start = time.perf_counter()
        try:
            if self._mode == "skip":
                return skipped()
            with torch.profiler.record_function(f"own:{name}"):
                return real()
        except BaseException:
            self.failed += 1
            raise
        finally:
            self.seconds += time.perf_counter() - start
            self._depth -= 1

    # -- where launches pass ---------------------------------------------------------------------------

    def _triton(self) -> None:
        jit = sys.modules.get("triton.runtime.jit")
        kinds = [*_subclasses(jit.KernelInterface)] if jit else []
        heuristics = sys.modules.get("torch._inductor.runtime.triton_heuristics")
        if heuristics:
            kinds += [heuristics.CachingAutotuner, *_subclasses(heuristics.CachingAutotuner)]
        for kind in kinds:
            if "run" in vars(kind):
                self._replace(kind, "run", self._triton_run(vars(kind)["run"]))

    def _triton_run(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def launch(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("warmup"):
                return run(kernel, *args, **kwargs)
            function = getattr(kernel, "fn", kernel)
            while hasattr(function, "fn"):
                function = function.fn
            name = "triton:" + str(getattr(function, "__name__", "kernel"))
            return self._launch(name, lambda: run(kernel, *args, **kwargs), lambda: None)

        return launch

    def _cute(self) -> None:
        for kind, method in cute.launchers():
            self._replace(kind, method, self._cute_call(vars(kind)[method]))

    def _cute_call(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def launch(function: Any, *args: Any, **kwargs: Any) -> Any:
            name = cute.name_of(function)
            return self._launch(name, lambda: run(function, *args, **kwargs), lambda: cute.SUCCESS)

        return launch

    def _ctypes(self) -> None:
        for library in self.loaded.libraries:
            names = _DRIVER_LAUNCHES if _of_the_system(library) else None
            self._foreign_functions(vars(library)["_FuncPtr"], names)
        for kind in list(getattr(ctypes, "_c_functype_cache", {}).values()):  # functions made of addresses
            self._foreign_functions(kind, None)

    def _foreign_functions(self, kind: Any, names: tuple[str, ...] | None) -> None:
        call = kind.__call__

        def launch(function: Any, *args: Any, **kwargs: Any) -> Any:
            name = getattr(function, "__name__", "function")
            if names is not None and name not in names:
                return call(function, *args, **kwargs)
            nothing = None if function.restype is None else 0
            return self._launch(name, lambda: call(function, *args, **kwargs), lambda: nothing)

        kind.__call__ = launch
        self._undo.append(lambda: delattr(kind, "__call__"))

    def _extensions(self) -> None:
        """Functions of extension modules are found by identity, wherever the candidate keeps them."""
        for module in self.loaded.extensions:
            for name in [n for n in vars(module) if not n.startswith("__")]:
                if isinstance(vars(module)[name], types.BuiltinFunctionType):
                    self._substitute(vars(module)[name], name)

    def _substitute(self, old: Any, name: str) -> None:
        holders = gc.get_referrers(old)
        # Held by a partial, and no closure here: a closure's variable would be found and replaced, too.
        new = self._extension_call(name, functools.partial(old))
        for holder in holders:
            if isinstance(holder, dict | list):
                for key, value in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
                    if value is old:
                        holder[key] = new
                        self._undo.append(functools.partial(holder.__setitem__, key, old))
            elif isinstance(holder, types.CellType):
                holder.cell_contents = new
                self._undo.append(functools.partial(setattr, holder, "cell_contents", old))
            elif isinstance(holder, tuple):
                self.complete = False

    def _extension_call(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._launch(
                name,
                lambda: function(*args, **kwargs),
                lambda: spoiled(function(*copied(args), **copied(kwargs))),
            )

        return call

    @contextmanager
    def _operators(self) -> Iterator[None]:
        """A mode that sees each operator; only entered where somebody has registered some."""
        if not _custom_operators(self.places):
            yield
            return
        with _OwnOperators(self._launch):
            yield

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        old = vars(owner)[name]
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, old))


class _OwnOperators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Passes operators of other namespaces than torch's through `launch`."""

    def __init__(self, launch: Callable[[str, Callable[[], Any], Callable[[], Any]], Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._launch = launch

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Else torch.compile would not compile within, and raise where no graph break is allowed."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if operator_kind(f"{func.namespace}::{func.__name__}") != "own":
            return func(*args, **kwargs)
        name = f"{func.namespace}::{func.__name__}"
        return self._launch(
            name, lambda: func(*args, **kwargs), lambda: spoiled(func(*copied(args), **copied(kwargs)))
        )


def _of_the_system(library: ctypes.CDLL) -> bool:
    """Installed, or this process itself: nothing that a candidate has built."""
    name = str(getattr(library, "_name", None) or "")
    installed = ("/usr/", "/lib", "/opt/", f"{sys.prefix}/", f"{sys.base_prefix}/")
    return "/" not in name or os.path.realpath(name).startswith(installed)


def _custom_operators(places: Places) -> bool:
    """Whether somebody else than torch has registered operators.

    Torch itself does, in namespaces that differ between its versions and only once some of its modules are
    imported: where an operator was defined decides. Entering a mode for nothing would import TorchDynamo,
    which takes seconds.
    """
    loaded = any(str(path) in places for path in torch.ops.loaded_libraries)
    defined = [str(name) for name in getattr(torch.library, "_defs", ())]
    return loaded or any(operator_kind(name) == "own" and not _of_torch(name) for name in defined)


def _of_torch(operator: str) -> bool:
    """Whether torch defined this operator: in its own files, or through its decorators for one there."""
    decorators = sys.modules.get("torch._library.custom_ops")
    custom = getattr(decorators, "OPDEFS", {}).get(operator)
    files = [custom._init_fn.__code__.co_filename] if custom is not None else defined_in(operator)
    through = str(getattr(decorators, "__file__", ""))
    return bool(files) and all(file.startswith(_TORCH) and file != through for file in files)


def _subclasses(kind: Any) -> Iterator[Any]:
    for child in kind.__subclasses__():
        yield child
        yield from _subclasses(child)


def copied(value: Any) -> Any:
    """Arguments with copies of their tensors: what is written to them is lost."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, list | tuple):
        return type(value)(copied(v) for v in value)
    return {k: copied(v) for k, v in value.items()} if isinstance(value, dict) else value


def spoiled(value: Any) -> Any:
    """Results with their tensors overwritten by what nobody computed."""
    if isinstance(value, torch.Tensor):
        with torch.no_grad():
            value.fill_(_garbage(value))
    elif isinstance(value, list | tuple):
        for item in value:
            spoiled(item)
    return value


def spoil_free_memory(like: list[torch.Tensor]) -> None:
    """Leaves no earlier result in freed memory of these sizes, where `torch.empty` could find it again."""
    with torch.no_grad():
        held = [torch.full_like(t, _garbage(t)) for t in like for _ in range(3)]
    del held


def _garbage(tensor: torch.Tensor) -> Any:
    if tensor.dtype == torch.bool:
        return True
    if tensor.is_floating_point() or tensor.is_complex():
        return float("nan") if tensor.element_size() > 1 else 1.0
    return 77
