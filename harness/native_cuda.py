"""A light binding for CUDA C++ kernels: compile, load through the driver, launch on tensors. No torch
headers, no build system, and no nvcc where NVRTC is installed (torch's CUDA wheels bring it).

    lib = load_cuda(r'''
    extern "C" __global__ void scale(const float* x, float* out, long long n, float a) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i < n) out[i] = a * x[i];
    }
    ''')
    lib.scale[(n + 255) // 256, 256](x, out, n, 2.0)

`lib.name[grid, block]` or `lib.name[grid, block, shared]` chooses a launch: grid and block are integers or
tuples of up to three, `shared` is dynamic shared memory in bytes (above 48 KiB too). Kernels run on torch's
current stream and the launch does not wait. A kernel is found by its name, `extern "C"` or not, unless it is
a template or overloaded.

Arguments are checked against the kernel's own parameters, and their number too: a tensor passes its data
pointer (check layout and dtype yourself), None a null pointer; an int or bool goes to an integer or bool
parameter of whatever width, if it fits; a float or int to a float or double; `bytes` to a struct of that
size. Everything else raises TypeError, an integer that does not fit OverflowError.

Where $KERNELEVOLVE_CUDA_ARCH names an architecture (`sm_90`), kernels are compiled for that one instead of
the current device, arguments are checked and nothing is launched: so the harness compiles for a device that
is not here.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from harness.native_build import NativeCompileError, cache_folder
from harness.nvrtc import Binary, compiler, real_architecture

ARCHITECTURE_VARIABLE = "KERNELEVOLVE_CUDA_ARCH"
THREADS_PER_BLOCK = 1024
_SHARED_WITHOUT_ASKING = 48 << 10  # CUDA C++ Programming Guide, "Shared Memory": more is an opt-in
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_INTEGERS = {f"{sign}{bits}": bits for sign in "usb" for bits in (8, 16, 32, 64)}
_FLOATS: dict[str, type[ctypes.c_float] | type[ctypes.c_double]] = {
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}
_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\((.*?)\)", re.DOTALL)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)(?:\s+\.ptr[^,]*?)?\s+(\w+)(?:\[(\d+)\])?\s*(?:,|$)"
)

loaded: list[CudaLibrary] = []  # in this process, for the harness's profile


class CudaLibrary:
    """A compiled source. Each of its kernels is an attribute. Raises AttributeError for an unknown one."""

    def __init__(self, binary: Binary, architecture: str, here: bool) -> None:
        self.binary, self.architecture = binary, architecture
        self.here = here  # whether kernels are launched, and not only compiled
        self.parameters: dict[str, list[tuple[str, int]]] = {
            name: _parameters(body) for name, body in _ENTRY.findall(binary.ptx)
        }
        self.kernels: dict[str, Kernel] = {}
        self._modules: dict[int, ctypes.c_void_p] = {}

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("__"):
            raise AttributeError(name)
        entry = self._entry(name)
        self.kernels[name] = kernel = Kernel(self, entry)
        setattr(self, name, kernel)
        return kernel

    def _entry(self, name: str) -> str:
        if name in self.parameters:
            return name
        mangled: list[str] = [e for e in self.parameters if e.startswith(f"_Z{len(name)}{name}")]
        if len(mangled) != 1:
            known = ", ".join(self.parameters) or "none"
            raise AttributeError(f"the CUDA source has no kernel {name} (its kernels: {known})")
        return mangled[0]

    def function(self, entry: str) -> ctypes.c_void_p:
        """The driver's handle of a kernel on torch's current device."""
        import torch

        device = torch.cuda.current_device()
        if device not in self._modules:
            torch.cuda.current_stream().synchronize()  # makes torch's context the current one
            module = ctypes.c_void_p()
            _check(_driver().cuModuleLoadData(ctypes.byref(module), self.binary.cubin), "loading the kernels")
            self._modules[device] = module
        handle = ctypes.c_void_p()
        found = _driver().cuModuleGetFunction(ctypes.byref(handle), self._modules[device], entry.encode())
        _check(found, f"finding {entry}")
        return handle


class Kernel:
    """One kernel; the keys of `launches` are each (grid, block, shared) that it was launched with."""

    def __init__(self, library: CudaLibrary, entry: str) -> None:
        self.library, self.entry = library, entry
        self.parameters = library.parameters[entry]
        self.launches: dict[tuple[tuple[int, ...], tuple[int, ...], int], None] = {}
        self._handles: dict[int, ctypes.c_void_p] = {}  # by device, like the next
        self._most_shared: dict[int, int] = {}

    def __getitem__(self, shape: tuple[Any, ...]) -> Callable[..., None]:
        if not isinstance(shape, tuple) or len(shape) not in (2, 3):
            raise TypeError("choose a launch with kernel[grid, block] or kernel[grid, block, shared]")
        grid, block = _three(shape[0]), _three(shape[1])
        shared = int(shape[2]) if len(shape) == 3 else 0
        if block[0] * block[1] * block[2] > THREADS_PER_BLOCK:
            raise ValueError(f"a block of {block} has more than {THREADS_PER_BLOCK} threads")

        def launch(*arguments: Any) -> None:
            self._launch(grid, block, shared, arguments)

        return launch

    def _launch(
        self, grid: tuple[int, ...], block: tuple[int, ...], shared: int, arguments: tuple[Any, ...]
    ) -> None:
        if len(arguments) != len(self.parameters):
            raise TypeError(f"{self.entry} takes {len(self.parameters)} arguments, not {len(arguments)}")
        values = [
            _convert(kind, size, argument, i)
            for i, ((kind, size), argument) in enumerate(zip(self.parameters, arguments, strict=True))
        ]
        self.launches[grid, block, shared] = None
        if not self.library.here or 0 in grid:
            return
        import torch

        device = torch.cuda.current_device()
        if device not in self._handles:
            self._handles[device] = self.library.function(self.entry)
        handle = self._handles[device]
        driver = _driver()
        if shared > self._most_shared.get(device, _SHARED_WITHOUT_ASKING):
            status = driver.cuFuncSetAttribute(handle, _MAX_DYNAMIC_SHARED, shared)
            _check(status, f"asking for {shared} bytes of shared memory for {self.entry}")
            self._most_shared[device] = shared
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        status = driver.cuLaunchKernel(handle, *grid, *block, shared, stream, pointers, None)
        _check(status, f"launching {self.entry} with grid {grid}, block {block}")


def load_cuda(source: str, flags: Sequence[str] = ()) -> CudaLibrary:
    """Compiles a CUDA C++ source for the current device; raises NativeCompileError.

    `flags` are options that NVRTC and nvcc share (`--use_fast_math`, `--maxrregcount=64`, `-DN=4`). Results
    are kept by content hash in $KERNELEVOLVE_NATIVE_CACHE, else in the user's cache folder.
    """
    wanted = os.environ.get(ARCHITECTURE_VARIABLE)
    architecture = wanted or _current_architecture()
    if not architecture.startswith("sm_"):
        raise NativeCompileError(f"CUDA C++ cannot be compiled for {architecture}")
    built_by = compiler()
    key = hashlib.sha256()
    for part in (source, *flags, real_architecture(architecture), built_by.version):
        key.update(part.encode() + b"\0")
    folder = cache_folder()
    cubin, ptx = (folder / f"{key.hexdigest()[:32]}.{kind}" for kind in ("cubin", "ptx"))
    if not (cubin.exists() and ptx.exists()):
        made = built_by.compile(source, architecture, flags)
        for path, data in ((cubin, made.cubin), (ptx, made.ptx.encode())):
            scratch = path.with_suffix(f"{path.suffix}.{os.getpid()}")
            scratch.write_bytes(data)
            scratch.replace(path)  # atomic: another process may want the same
    library = CudaLibrary(Binary(cubin.read_bytes(), ptx.read_text()), architecture, here=not wanted)
    loaded.append(library)
    return library


def _current_architecture() -> str:
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(f"no CUDA device; set {ARCHITECTURE_VARIABLE} to compile for one that is not here")
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def _parameters(text: str) -> list[tuple[str, int]]:
    """Kind (`u64`, `f32`, `struct` …) and size in bytes of each parameter of a PTX entry."""
    found = []
    for kind, _, count in _PARAMETER.findall(" ".join(text.split())):
        if count:
            found.append(("struct", int(count)))
        else:
            found.append((kind, (_INTEGERS.get(kind) or int(kind[1:])) // 8))
    return found


def _convert(kind: str, size: int, value: Any, index: int) -> Any:
    """The argument as the kernel's parameter wants it; raises TypeError or OverflowError."""
    pointer = getattr(value, "data_ptr", None)
    if pointer is not None and kind in ("u64", "b64", "s64"):
        if not value.is_cuda:
            raise ValueError(f"argument {index} is a tensor on {value.device}, not on a CUDA device")
        return ctypes.c_uint64(pointer())
    if value is None and kind in ("u64", "b64", "s64"):
        return ctypes.c_uint64(0)
    if isinstance(value, bool | int) and kind in _INTEGERS:
        bits = size * 8
        if not -(1 << (bits - 1)) <= int(value) < 1 << bits:
            raise OverflowError(f"argument {index}: {value} does not fit into {bits} bits")
        return (ctypes.c_uint8 * size).from_buffer_copy((int(value) % (1 << bits)).to_bytes(size, "little"))
    if isinstance(value, float | int) and not isinstance(value, bool) and kind in _FLOATS:
        return _FLOATS[kind](value)
    if isinstance(value, bytes) and kind == "struct" and len(value) == size:
        return (ctypes.c_uint8 * size).from_buffer_copy(value)
    wanted = f"a struct of {size} bytes (pass bytes)" if kind == "struct" else f"a {kind} parameter"
    raise TypeError(f"argument {index} is a {type(value).__name__}; the kernel has {wanted} there")


def _three(shape: Any) -> tuple[int, ...]:
    parts = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if not 1 <= len(parts) <= 3 or any(not isinstance(n, int) or n < 0 for n in parts):
        raise TypeError(f"{shape!r} is not an integer or a tuple of up to three")
    return (*parts, *(1,) * (3 - len(parts)))


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _check(status: int, what: str) -> None:
    if status:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f"CUDA error while {what}: {(text.value or b'unknown').decode()}")
