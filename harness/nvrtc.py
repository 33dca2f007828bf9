"""CUDA C++ to a cubin: by NVRTC where it is installed (a wheel, the CUDA toolkit), else by nvcc."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.native_build import NativeCompileError, first_errors, run_compiler

SOURCE_NAME = "kernel.cu"
# From compute capability 9.0 on, the newest instructions (wgmma, tcgen05) need an architecture's own variant.
_SPECIFIC_FROM = 90
# NVRTC finds no standard headers; these are what kernels include most.
_HEADERS = {
    "cstdint": "#pragma once\n#include <stdint.h>\nnamespace std { using ::int64_t; using ::uint64_t; "
    "using ::int32_t; using ::uint32_t; }\n",
    "stdint.h": "#pragma once\ntypedef signed char int8_t; typedef unsigned char uint8_t; "
    "typedef short int16_t; "
    "typedef unsigned short uint16_t; typedef int int32_t; typedef unsigned int uint32_t; "
    "typedef long long int64_t; typedef unsigned long long uint64_t; "
    "typedef unsigned long long uintptr_t; typedef long long intptr_t;\n",
}


@dataclass(frozen=True)
class Binary:
    """One compiled source: the machine code, and the PTX that tells its kernels' parameters."""

    cubin: bytes
    ptx: str


@dataclass(frozen=True)
class Compiler:
    """`version` is part of what a cached result depends on. `library` is NVRTC, `nvcc` the program."""

    version: str
    library: ctypes.CDLL | None = None
    nvcc: str = ""

    def compile(self, source: str, architecture: str, flags: Sequence[str]) -> Binary:
        """`architecture` is `sm_90` or the like. Raises NativeCompileError."""
        if self.library is not None:
            return _by_nvrtc(self.library, source, architecture, flags)
        return _by_nvcc(self.nvcc, source, architecture, flags)


@functools.cache
def compiler() -> Compiler:
    """The compiler of this machine. Raises NativeCompileError where there is none."""
    library = _nvrtc()
    if library is not None:
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return Compiler(f"nvrtc {major.value}.{minor.value}", library)
    nvcc = find_nvcc()
    if nvcc is None:
        raise NativeCompileError(
            "no CUDA compiler: install the wheel nvidia-cuda-nvrtc or the CUDA toolkit (nvcc)"
        )
    return Compiler(run_compiler([nvcc, "--version"], "/", 60.0).strip(), nvcc=nvcc)


def has_compiler() -> bool:
    """Whether something here compiles CUDA C++. Nothing is loaded to find out."""
    return _nvrtc_path() is not None or find_nvcc() is not None


def find_nvcc() -> str | None:
    """nvcc: of $CUDA_HOME, on the path, or in the usual place."""
    for folder in (os.environ.get("CUDA_HOME"), None, "/usr/local/cuda"):
        found = shutil.which("nvcc") if folder is None else shutil.which(f"{folder}/bin/nvcc")
        if found:
            return found
    return None


def real_architecture(architecture: str) -> str:
    """`sm_90a` for `sm_90`; older ones as they are."""
    number = re.fullmatch(r"sm_(\d+)", architecture)
    return f"{architecture}a" if number and int(number[1]) >= _SPECIFIC_FROM else architecture


def _by_nvrtc(library: ctypes.CDLL, source: str, architecture: str, flags: Sequence[str]) -> Binary:
    program = ctypes.c_void_p()
    names = (ctypes.c_char_p * len(_HEADERS))(*[n.encode() for n in _HEADERS])
    texts = (ctypes.c_char_p * len(_HEADERS))(*[t.encode() for t in _HEADERS.values()])
    library.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), SOURCE_NAME.encode(), len(_HEADERS), texts, names
    )
    options = [f"--gpu-architecture={real_architecture(architecture)}", "--std=c++17", *flags]
    options += [f"-I{folder}" for folder in _include_folders()]
    array = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
    try:
        status = library.nvrtcCompileProgram(program, len(options), array)
        log = _read(library, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status:
            raise NativeCompileError(first_errors(log) or f"NVRTC failed with error {status}", log)
        ptx = _read(library, program, "PTX").rstrip(b"\0").decode()
        return Binary(_read(library, program, "CUBIN"), ptx)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, buffer)
    return buffer.raw


def _by_nvcc(nvcc: str, source: str, architecture: str, flags: Sequence[str]) -> Binary:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / SOURCE_NAME).write_text(source, encoding="utf-8")
        options = [f"-arch={real_architecture(architecture)}", "-std=c++17", *flags]
        run_compiler([nvcc, "-ptx", *options, SOURCE_NAME, "-o", "kernel.ptx"], folder)
        run_compiler([nvcc, "-cubin", *options, SOURCE_NAME, "-o", "kernel.cubin"], folder)
        return Binary((scratch / "kernel.cubin").read_bytes(), (scratch / "kernel.ptx").read_text())


def _nvrtc() -> ctypes.CDLL | None:
    path = _nvrtc_path()
    if path is None:
        return None
    for part in path.parent.glob("libnvrtc-builtins*.so*"):  # else it looks for them on the system's path
        if ".alt." not in part.name:
            ctypes.CDLL(str(part))
    return ctypes.CDLL(str(path))


def _nvrtc_path() -> Path | None:
    for folder in _library_folders():
        for path in sorted(folder.glob("libnvrtc*.so*"), reverse=True):
            # torch's own copy carries a hash in its name.
            if re.fullmatch(r"libnvrtc(-[0-9a-f]{8})?\.so(\.\d+)*", path.name):
                return path
    return None


def _library_folders() -> Iterator[Path]:
    for root in _wheel_folders():
        yield root / "lib"
    home = os.environ.get("CUDA_HOME")
    for toolkit in (home, "/usr/local/cuda"):
        if toolkit:
            yield from (Path(toolkit) / "lib64", Path(toolkit) / "lib")
    torch = importlib.util.find_spec("torch")
    if torch is not None and torch.origin is not None:
        yield Path(torch.origin).parent / "lib"


def _wheel_folders() -> list[Path]:
    """Where the wheels of CUDA's parts put their files, newest layout first."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in spec.submodule_search_locations or ()] if spec is not None else []
    named = [r / n for r in roots for n in ("cu13", "cuda_nvrtc", "cuda_runtime")]
    return [folder for folder in named if folder.is_dir()]


@functools.cache
def _include_folders() -> tuple[str, ...]:
    folders = [root / "include" for root in _wheel_folders()]
    home = os.environ.get("CUDA_HOME")
    folders += [Path(toolkit) / "include" for toolkit in (home, "/usr/local/cuda") if toolkit]
    with_parts = [part for folder in folders for part in (folder, folder / "cccl")]
    return tuple(str(folder) for folder in with_parts if folder.is_dir())
