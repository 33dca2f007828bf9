"""In the candidate's child: what of torch, Python and the harness has changed since before its import, and
what its code asked the interpreter for.

A candidate shares this process and may make it lie. Then it gains nothing: clock, inputs and comparison are
the judge's, in another process. This is here so that an attempt gets its name instead of a shrug.
"""

from __future__ import annotations

import builtins
import gc
import inspect
import os
import re
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from harness.worker.jail.places import Places
from harness.worker.packages import package_folders

Change = tuple[str, str]  # rule, detail

_MODULES = (
    *(
        "torch",
        "torch.nn.functional",
        "torch.nn.modules.module",
        "torch.autograd",
        "torch.cuda",
        "torch.testing",
    ),
    *("torch.overrides", "torch.random", "torch._tensor", "torch.utils.benchmark", "torch.cuda.streams"),
    *(
        "torch.utils.benchmark.utils.timer",
        "triton.testing",
        "triton.runtime.jit",
        "triton.runtime.autotuner",
    ),
    *(
        "time",
        "timeit",
        "json",
        "gc",
        "sys",
        "os",
        "socket",
        "struct",
        "threading",
        "inspect",
        "_thread",
        "mmap",
    ),
    *("random", "math", "pickle", "ctypes", "importlib", "numpy", "numpy.testing"),
)
_CLASSES = (
    *(
        "torch.Tensor",
        "torch._C.TensorBase",
        "torch.nn.Module",
        "torch.nn.Parameter",
        "torch.autograd.Function",
    ),
    *("torch.cuda.Event", "torch.cuda.Stream", "torch._C._CudaEventBase", "torch.Generator", "socket.socket"),
    *("torch.UntypedStorage", "torch.autograd.profiler.profile"),
)
# Names that their own module rebinds as it is used.
_REBOUND = {"torch.cuda.default_generators", "threading._active", "sys.last_value", "sys.last_traceback"}
_SNOOPING = ("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys._getframe", "sys._current_frames")
_UNMARSHALLING = ("marshal.load", "marshal.loads")
_SCHEDULING = ("sys.setprofile", "sys.settrace")
_GUARDED = ("__code__", "__defaults__", "__kwdefaults__", "__globals__", "__bases__")
_IMPLEMENTED = re.compile(r"^\w+(?:\[alias\])?: registered at (.+):\d+ ::", re.MULTILINE)
_DEFINED = re.compile(r"^debug: registered at (.+):\d+", re.MULTILINE)
KEPT_SOURCES = 400_000  # characters of texts that were compiled
_PAGE = 8_000  # of them in one message, whatever they are made of
_KEPT_CHANGES = 40
_PATHS = ("bytecode_path", "fullpath", "pathname")  # what the import system calls a file that it loads

_getframe: Callable[[int], types.FrameType] = sys._getframe


class Watch:
    """A snapshot, and an audit hook that notes what code outside of installed libraries asks for."""

    def __init__(self, places: Places) -> None:
        self.noted: dict[Change, None] = {}
        self._sources: dict[str, None] = {}
        self._size = 0
        self._libraries = _library_folders(places)
        self._standard = (f"{Path(inspect.__file__).parent}/", "<frozen ")
        self._busy = False
        self._modules = {name: sys.modules[name] for name in _MODULES if name in sys.modules}
        self._members = dict(_members(self._modules))
        self._identities = {id(thing) for thing in self._members.values()}
        self._insides = {name: _inside(thing) for name, thing in self._members.items()}
        self._state = _global_state()
        self._places = places
        self._registered = _python_kernels()
        sys.addaudithook(self._audit)

    def changes(self) -> list[Change]:
        """What differs from the snapshot, and what was noted since."""
        found = dict(self.noted)
        now = dict(_members(self._modules))
        for name, module in self._modules.items():
            if sys.modules.get(name) is not module:
                found["replaces-module", f"sys.modules[{name!r}] was replaced"] = None
        state = _global_state()
        for name, thing in self._members.items():
            if now.get(name) is not thing and not self._by_library(now.get(name)):
                found["patches-library", f"{name} was replaced"] = None
            elif _inside(thing) != self._insides[name]:
                found["patches-library", f"the code of {name} was replaced"] = None
        for name in now.keys() - self._members.keys():
            if _hides(name) and not self._by_library(now[name]):
                found["patches-library", f"{name} was replaced"] = None
        for name in foreign_kernels(self._places, self._registered):
            found["overrides-operator", f"{name} was replaced in the dispatcher"] = None
        for key, value in self._state.items():
            if state[key] != value:
                found[key[0], key[1]] = None
        return list(found)[:_KEPT_CHANGES]

    def executed(self, start: int) -> str:
        """A page of the texts that were compiled, from a character on; they are separated by NUL."""
        return "\0".join(self._sources)[start : start + _PAGE]

    def _by_library(self, thing: Any) -> bool:
        """Whether a library put something there itself, as TorchDynamo wraps `Module.__init__`: a function of
        its own that did not exist before.
        """
        known = isinstance(thing, types.FunctionType) and thing.__code__.co_filename.startswith(
            self._libraries
        )
        return known and id(thing) not in self._identities

    def running_threads(self) -> list[str]:
        """Names of other threads that are executing Python code, not waiting in a library's."""
        frames, names = sys._current_frames(), {t.ident: t.name for t in threading.enumerate()}
        busy = []
        for ident, frame in frames.items():
            if ident != threading.get_ident() and not frame.f_code.co_filename.startswith(self._libraries):
                busy.append(f"{names.get(ident, 'unknown')} in {frame.f_code.co_name}")
        return busy[:8]

    # -- audit -----------------------------------------------------------------------------------------

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._busy or event not in _EVENTS:
            return
        self._busy = True
        try:
            caller = _getframe(1)
            if caller.f_code.co_filename == inspect.__file__ and caller.f_back is not None:
                caller = caller.f_back
                while caller.f_code.co_filename == inspect.__file__ and caller.f_back is not None:
                    caller = caller.f_back
            by_library = caller.f_code.co_filename.startswith(self._libraries)
            if not by_library or self._is_own_file(event, arguments, caller):
                self._note(event, arguments, caller)
        finally:
            self._busy = False

    def _note(self, event: str, arguments: tuple[Any, ...], caller: types.FrameType) -> None:
        where = f"(line {caller.f_lineno})"
        if event in _SNOOPING:
            self.noted["inspects-harness", f"{event} was called {where}"] = None
        elif event in _SCHEDULING:
            self.noted["schedules-code", f"{event} was called {where}"] = None
        elif event == "sys.addaudithook":
            self.noted["inspects-harness", f"an audit hook was installed {where}"] = None
        elif event in _UNMARSHALLING:
            self.noted["hidden-code", f"compiled code was unmarshalled {where}"] = None
        elif event == "object.__setattr__":
            thing, name = arguments[0], str(arguments[1])
            if name in _GUARDED and not self._is_own(thing):
                self.noted["patches-library", f"{name} of {_title(thing)} was replaced {where}"] = None
        elif event == "compile" and arguments and isinstance(arguments[0], str | bytes):
            source = arguments[0] if isinstance(arguments[0], str) else arguments[0].decode(errors="replace")
            if source not in self._sources and self._size < KEPT_SOURCES:
                self._size += len(source) + 1
                self._sources[source[:KEPT_SOURCES]] = None

    def _is_own_file(self, event: str, arguments: tuple[Any, ...], caller: types.FrameType) -> bool:
        """Whether the standard library loads code from a file that the candidate may have written: a module
        that is imported, a script that is run.
        """
        name = caller.f_code.co_filename
        if not name.startswith(self._standard) or "-packages/" in name:
            return False
        if event == "compile":
            file = arguments[1] if len(arguments) > 1 else None
        elif event in _UNMARSHALLING:
            file = next((caller.f_locals[key] for key in _PATHS if key in caller.f_locals), None)
        else:
            return False
        path = os.fsdecode(file) if isinstance(file, str | bytes) else ""
        named = bool(path) and (not path.startswith("<") or Path(path).exists())  # `<string>` is no file
        return named and path in self._places

    def _is_own(self, thing: Any) -> bool:
        module = sys.modules.get(getattr(thing, "__module__", None) or "")
        file = getattr(module, "__file__", None) or ""
        return not (file.startswith(self._libraries) or module is builtins)


_EVENTS = {*_SNOOPING, *_SCHEDULING, *_UNMARSHALLING, "sys.addaudithook", "object.__setattr__", "compile"}


def _library_folders(places: Places) -> tuple[str, ...]:
    """Where code lies that no candidate wrote: what was on the path before it was imported. Frozen modules
    have no folder.
    """
    files = [inspect.__file__, torch.__file__, __file__]
    folders = {str(Path(file).resolve().parent) for file in files if file}
    folders |= {str(Path(p).absolute()) for p in sys.path if p and places.apart(p)}
    folders |= {str(Path(inspect.__file__).parent), str(Path(__file__).resolve().parents[2])}
    folders |= package_folders()
    return (*sorted(folder + "/" for folder in folders), "<frozen ")


def _members(modules: dict[str, types.ModuleType]) -> Iterator[tuple[str, Any]]:
    """Functions, methods, properties and classes of what is watched, by dotted name."""
    owners: list[tuple[str, Any]] = [*modules.items(), ("builtins", builtins)]
    owners += [
        (name, module) for name, module in list(sys.modules.items()) if name.startswith("harness.worker.")
    ]
    owners += [(name, _look_up(name)) for name in _CLASSES]
    for owner_name, owner in owners:
        for name, thing in list(getattr(owner, "__dict__", {}).items()):
            full = f"{owner_name}.{name}"
            if _is_code(thing) and full not in _REBOUND:
                yield full, thing
                if (
                    owner_name.startswith("harness.")
                    and isinstance(thing, type)
                    and thing.__module__ == owner_name
                ):
                    for inner, method in list(vars(thing).items()):
                        if _is_code(method):
                            yield f"{full}.{inner}", method


def _hides(name: str) -> bool:
    """Whether a new name of a watched class hides one that the class inherits or Python looks for."""
    owner, _, last = name.rpartition(".")
    bases = inspect.getmro(_look_up(owner))[1:] if owner in _CLASSES else ()
    return any(last in vars(base) for base in bases) or (bool(bases) and last.startswith("__"))


def _is_code(thing: Any) -> bool:
    return (
        callable(thing)
        or isinstance(thing, property | staticmethod | classmethod)
        or inspect.isdatadescriptor(thing)
    )


def _look_up(name: str) -> Any:
    root, *rest = name.split(".")
    thing: Any = sys.modules.get(root)
    for part in rest:
        thing = inspect.getattr_static(thing, part, None)
    return thing


def _inside(thing: Any) -> tuple[int, ...]:
    """Identities of what makes a Python function do what it does."""
    function = thing.__func__ if isinstance(thing, staticmethod | classmethod) else thing
    if not isinstance(function, types.FunctionType):
        return ()
    return id(function.__code__), id(function.__defaults__), id(function.__kwdefaults__)


def _title(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', type(thing).__name__)}"[:80]


def _global_state() -> dict[Change, Any]:
    """What can make other people's code do something else, under the rule and the words for a change."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    module = sys.modules["torch.nn.modules.module"]
    hooks = {
        name: len(table)
        for name, table in vars(module).items()
        if name.startswith("_global_") and hasattr(table, "__len__")
    }
    stack: list[Any] = torch.overrides._get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    functions = [m for m in stack if type(m).__name__ != "DeviceContext"]
    state: dict[Change, Any] = {
        ("global-hook", "hooks for all modules were registered"): hooks,
        ("global-mode", "a mode for all of torch's functions was left on"): len(functions),
        ("global-mode", "a mode for all of torch's operators was left on"): len(
            _get_current_dispatch_mode_stack()
        ),
        ("schedules-code", "a profile or trace function was left on"): (sys.getprofile(), sys.gettrace()),
        ("schedules-code", "a callback of the garbage collector was installed"): len(gc.callbacks),
        ("schedules-code", "a signal handler was installed"): _signal_handlers(),
        ("schedules-code", "an interval timer was started"): _timers(),
    }
    return state


def foreign_kernels(places: Places, registered: set[str]) -> list[str]:
    """Operators of torch for which somebody else registered a kernel, from Python or from an own library.

    The dispatcher knows the file of each registration. It is asked (for 0.1 s) where there is a reason:
    Python kernels that are not among those `registered` before, or a library loaded from the candidate's
    folders, or from no folder at all.
    """
    mapped = _mapped_files()
    if _python_kernels() <= registered and not any("/memfd:" in file or file in places for file in mapped):
        return []
    found = []
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if name.partition("::")[0] in ("aten", "prims"):
            files = _IMPLEMENTED.findall(torch._C._dispatch_dump(name))
            if any(file.startswith("<") or "/" not in file or file in places for file in files):
                found.append(name)
    return found[:8]


def defined_in(operator: str) -> list[str]:
    """The files in which an operator was defined, as the dispatcher knows them."""
    name = "".join(operator.split())  # torch writes some of its own over two lines
    return _DEFINED.findall(torch._C._dispatch_dump(name))


def _mapped_files() -> set[str]:
    """What this process executes code of."""
    lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    fields = (line.split(maxsplit=5) for line in lines)
    return {found[5].removesuffix(" (deleted)") for found in fields if len(found) == 6 and "x" in found[1]}


def _python_kernels() -> set[str]:
    """Python kernels for torch's operators, which torch.library keeps in a set of its own."""
    return {
        str(key) for key in getattr(torch.library, "_impls", ()) if str(key).startswith(("aten/", "prims/"))
    }


def _signal_handlers() -> dict[int, Any]:
    handlers = {int(number): signal.getsignal(number) for number in signal.valid_signals()}
    return {number: handler for number, handler in handlers.items() if callable(handler)}


def _timers() -> tuple[float, ...]:
    return tuple(
        signal.getitimer(which)[0]
        for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
    )
