"""A light binding for C++ kernels: compile, load with ctypes, call with tensors. No torch headers, no build
system.

    lib = load_cpp(r'''
    #include <cstdint>
    extern "C" void scale(const float* x, float* out, int64_t n, float a) {
        #pragma omp parallel for
        for (int64_t i = 0; i < n; ++i) out[i] = a * x[i];
    }
    ''')
    lib.scale(x, out, x.numel(), 2.0)

Only the standard library is imported here; candidates and exported kernels may rely on this module.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DEFAULT_FLAGS = ("-O3", "-march=native", "-fopenmp")
INCLUDE = Path(__file__).resolve().parent / "include"
CACHE_VARIABLE = "KERNELEVOLVE_NATIVE_CACHE"
COMPILE_LIMIT_S = 300.0
_ERRORS_SHOWN = 3


class NativeCompileError(RuntimeError):
    """The C++ compiler refused a source or is missing. The message holds its first errors; `log` is all it
    said.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class Library:
    """A compiled source. Each of its `extern "C"` functions is an attribute.

    Arguments: a tensor passes its data pointer (check layout and dtype yourself), an int becomes `int64_t`, a
    bool `bool`, a float `float`, None a null pointer. Functions return nothing. Raises AttributeError for an
    unknown function and TypeError for an argument of another type.
    """

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self.path = path

    def __getattr__(self, name: str) -> Callable[..., None]:
        try:
            function = self._library[name]
        except AttributeError as error:
            raise AttributeError(f'the C++ source has no extern "C" function {name}') from error
        function.restype = None

        def call(*arguments: Any) -> None:
            function(*[_convert(a) for a in arguments])

        call.__name__ = name
        setattr(self, name, call)
        return call


def load_cpp(source: str, flags: Sequence[str] = DEFAULT_FLAGS) -> Library:
    """Compiles a C++17 source to a shared library and loads it; raises NativeCompileError.

    `<ke_math.h>` and the other headers shipped with the harness are on the include path. The compiler is
    $CXX, g++ or clang++. Results are kept by content hash in $KERNELEVOLVE_NATIVE_CACHE, else in the user's
    cache folder.
    """
    compiler = _compiler()
    folder = _cache_folder()
    key = hashlib.sha256()
    for part in (source, *flags, compiler, _version(compiler), _headers(), _machine()):
        key.update(part.encode() + b"\0")
    library = folder / f"{key.hexdigest()[:32]}.so"
    if not library.exists():
        _compile(compiler, source, flags, library)
    return Library(library)


def _compile(compiler: str, source: str, flags: Sequence[str], library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        (Path(scratch) / "kernel.cpp").write_text(source, encoding="utf-8")
        command = [
            compiler,
            "-std=c++17",
            "-shared",
            "-fPIC",
            f"-I{INCLUDE}",
            *flags,
            "kernel.cpp",
            "-o",
            "kernel.so",
        ]
        try:
            done = subprocess.run(
                command, cwd=scratch, capture_output=True, timeout=COMPILE_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise NativeCompileError(f"the C++ compiler took longer than {COMPILE_LIMIT_S:g} s") from error
        if done.returncode:
            log = done.stderr.decode(errors="replace")
            errors = [line for line in log.splitlines() if "error" in line][:_ERRORS_SHOWN]
            raise NativeCompileError(
                "; ".join(errors) or f"{compiler} exited with code {done.returncode}", log
            )
        (Path(scratch) / "kernel.so").replace(library)  # atomic: another process may want the same library


def _convert(argument: Any) -> Any:
    pointer = getattr(argument, "data_ptr", None)
    if pointer is not None:
        return ctypes.c_void_p(pointer())
    if isinstance(argument, bool):
        return ctypes.c_bool(argument)
    if isinstance(argument, int):
        return ctypes.c_int64(argument)
    if isinstance(argument, float):
        return ctypes.c_float(argument)
    if argument is None:
        return ctypes.c_void_p(None)
    raise TypeError(f"a C++ function cannot take a {type(argument).__name__}")


def _compiler() -> str:
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise NativeCompileError("no C++ compiler: install g++ or set CXX")


def _cache_folder() -> Path:
    base = os.environ.get(CACHE_VARIABLE)
    if base is None:
        root = os.environ.get("XDG_CACHE_HOME")
        base = str((Path(root) if root else Path.home() / ".cache") / "kernelevolve" / "native")
    folder = Path(base)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.cache
def _version(compiler: str) -> str:
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout


@functools.cache
def _headers() -> str:
    return "\0".join(p.read_text(encoding="utf-8") for p in sorted(INCLUDE.glob("*.h")))


@functools.cache
def _machine() -> str:
    """What -march=native depends on: a cache folder may be shared between machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
