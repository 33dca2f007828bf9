"""CUDA C++ of candidates whose device is not here: the harness's own light binding, and torch's inline
extensions.

Extensions are compiled to machine code by nvcc alone; they are neither linked nor called.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.worker.profiling import sass
from harness.worker.profiling.static import Compiled

ARCHITECTURE_VARIABLE = "KERNELEVOLVE_CUDA_ARCH"  # harness.native_cuda reads it
_IMPLICIT = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"
# As torch's own build calls nvcc.
_TORCH_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
)


class NotFollowed(Exception):
    """What comes after cannot be found out without the device, or without a tool that is not here."""


class CppCompileError(Exception):
    """nvcc refused a source."""


class _Extension:
    """What a compiled extension looks like: calling it would need the device."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, function: str) -> Any:
        if function.startswith("__"):
            raise AttributeError(function)

        def call(*_: Any, **__: Any) -> Any:
            raise NotFollowed(
                f"{function}() of the extension {self.__name__} was compiled, but cannot be called"
            )

        return call


_extensions: list[Compiled] = []


def install(target: dict[str, Any], scratch: Path) -> list[str]:
    """Makes CUDA C++ in this process compile for the target; the list it returns will name what is
    missing for that, and why, once it is needed.
    """
    from torch.utils import cpp_extension

    architecture = target["architecture"]
    missing: list[str] = []
    cuda = target["vendor"] == "nvidia"
    os.environ[ARCHITECTURE_VARIABLE] = architecture

    def build(name: str, text: str, flags: Sequence[str], includes: Sequence[str]) -> _Extension:
        nvcc = sass.find("nvcc") if cuda else None
        if nvcc is None:
            tool, why = (
                ("nvcc", "not found") if cuda else ("hipcc", "HIP C++ is not compiled in this version")
            )
            missing.append(f"{tool}: {why}")
            raise NotFollowed(f"the extension {name} needs {tool}: {why}")
        cubin = _compile([nvcc, *_options(architecture, flags, includes, scratch)], text, scratch)
        _extensions.extend(_kernels_of(cubin, architecture))
        return _Extension(name)

    def load_inline(
        name: str,
        cpp_sources: Any = None,
        cuda_sources: Any = None,
        *,
        extra_cuda_cflags: Sequence[str] | None = None,
        extra_include_paths: Any = None,
        no_implicit_headers: bool = False,
        is_python_module: bool = True,
        **_: Any,
    ) -> _Extension:
        del cpp_sources  # their part runs on the host
        text = "\n".join(_listed(cuda_sources))
        if not text.strip():
            raise NotFollowed(
                f"the extension {name} has no CUDA sources: C++ ones are not compiled without the device"
            )
        head = "" if no_implicit_headers else _IMPLICIT
        extension = build(name, head + text, extra_cuda_cflags or (), _listed(extra_include_paths))
        if not is_python_module:
            raise NotFollowed(f"the library {name} was compiled, but cannot be loaded")
        return extension

    def load(
        name: str,
        sources: Any,
        extra_cuda_cflags: Sequence[str] | None = None,
        extra_include_paths: Any = None,
        is_python_module: bool = True,
        **_: Any,
    ) -> _Extension:
        texts = [Path(s).read_text(encoding="utf-8") for s in _listed(sources) if str(s).endswith(".cu")]
        return load_inline(
            name,
            cuda_sources=texts,
            extra_cuda_cflags=extra_cuda_cflags,
            extra_include_paths=extra_include_paths,
            no_implicit_headers=True,
            is_python_module=is_python_module,
        )

    module: Any = cpp_extension
    module.load_inline, module.load = load_inline, load
    return missing


def extensions() -> list[Compiled]:
    """The kernels of the extensions that were compiled so far."""
    return list(_extensions)


def _kernels_of(cubin: bytes, architecture: str) -> list[Compiled]:
    tool = sass.find("cuobjdump")
    names = sass.kernel_names(tool, cubin) if tool else ["extension"]
    return [Compiled(name, "cuda", architecture, name, binaries={"cubin": cubin}) for name in names]


def _options(architecture: str, flags: Sequence[str], includes: Sequence[str], scratch: Path) -> list[str]:
    from torch.utils import cpp_extension

    # A torch that is built for the CPU has the headers of its CUDA part, but for one: how that was built.
    macros = scratch / "include" / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h"
    macros.parent.mkdir(parents=True, exist_ok=True)
    macros.write_text("#pragma once\n#define C10_CUDA_BUILD_SHARED_LIBS\n")
    python = sysconfig.get_path("include")
    folders = [*cpp_extension.include_paths(), python, *includes, str(scratch / "include")]
    number = architecture.removeprefix("sm_")
    return [
        *("-cubin", f"-arch=sm_{number}{'a' if int(number) >= 90 else ''}", "-std=c++20", *_TORCH_FLAGS),
        *(f"-I{folder}" for folder in folders),
        *(f for f in flags if not f.startswith(("-gencode", "-arch", "--generate-code", "--gpu-arch"))),
    ]


def _compile(command: list[str], text: str, scratch: Path) -> bytes:
    source, cubin = scratch / "cuda.cu", scratch / "cuda.cubin"
    source.write_text(text, encoding="utf-8")
    command = [*command, "-o", str(cubin), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=scratch)
    if done.returncode:
        said = done.stderr + done.stdout
        absent = re.search(r"fatal error: (\S+): No such file", said)
        if absent:
            raise NotFollowed(f"nvcc finds no {absent[1]} here")
        raise CppCompileError(said or f"nvcc exited with code {done.returncode}")
    return cubin.read_bytes()


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(value)] if isinstance(value, str | Path) else [str(v) for v in value]
