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

`load_cuda` does the same for CUDA C++ (`harness/native_cuda.py`).

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

from harness.native_build import NativeCompileError, cache_folder, run_compiler
from harness.native_cuda import load_cuda

__all__ = ["Library", "NativeCompileError", "load_cpp", "load_cuda"]

DEFAULT_FLAGS = ("-O3", "-march=native", "-fopenmp")
INCLUDE = Path(__file__).resolve().parent / "include"


class Library:
    """A compiled source. Each of its `extern "C"` functions is an attribute.

    Arguments: a contiguous tensor passes its data pointer (check the dtype yourself), an int becomes
    `int64_t`, a bool `bool`, a float `float`, None a null pointer. Functions return nothing. Raises
    AttributeError for an unknown function, TypeError for an argument of another type and ValueError for a
    tensor that is not contiguous: a kernel that is told the strides is given `x.data_ptr()`.
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
    folder = cache_folder()
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
        fixed = ["-std=c++17", "-shared", "-fPIC", f"-I{INCLUDE}"]
        run_compiler([compiler, *fixed, *flags, "kernel.cpp", "-o", "kernel.so"], scratch)
        (Path(scratch) / "kernel.so").replace(library)  # atomic: another process may want the same library


def _convert(argument: Any) -> Any:
    pointer = getattr(argument, "data_ptr", None)
    if pointer is not None:
        if not argument.is_contiguous():
            shape, stride = tuple(argument.shape), argument.stride()
            raise ValueError(f"a tensor of shape {shape} and strides {stride} is not contiguous")
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
