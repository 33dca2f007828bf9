"""C++ of candidates whose device is not here: the harness's own light binding, and torch's inline extensions.

Extensions with device code are compiled to machine code by nvcc or hipcc alone; they are neither linked nor
called. Those without are built as ever, and called with what is on the host.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from harness.worker.crosscompile import hip
from harness.worker.crosscompile.device import on_device
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


# As gcc's preprocessor and clang say it.
_ABSENT = re.compile(r"fatal error: '?([^\s:']+)'?(?:: No such file| file not found)")


class NotFollowed(Exception):
    """What comes after cannot be found out without the device, or without a tool that is not here."""


class CppCompileError(Exception):
    """nvcc or hipcc refused a source."""


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


class _HostExtension:
    """One without device code: its functions are called, unless they are given tensors of the device."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, function: str) -> Any:
        value = getattr(self._module, function)
        if function.startswith("__") or not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            if any(isinstance(a, torch.Tensor) and on_device(a) for a in (*args, *kwargs.values())):
                name = self._module.__name__
                raise NotFollowed(f"{function}() of the C++ extension {name} takes tensors of the device")
            return value(*args, **kwargs)

        return call


_extensions: list[Compiled] = []


def install(target: dict[str, Any], scratch: Path) -> list[str]:
    """Makes C++ in this process compile for the target; the list it returns will name what is missing for
    that, and why, once it is needed.
    """
    from torch.utils import cpp_extension

    architecture = target["architecture"]
    missing: list[str] = []
    os.environ[ARCHITECTURE_VARIABLE] = architecture
    cuda = target["vendor"] == "nvidia"
    module: Any = cpp_extension
    real_inline, real_load = module.load_inline, module.load

    def needs(name: str, what: str) -> NotFollowed:
        missing.append(f"{what}: not found")
        return NotFollowed(f"the extension {name} needs {what}: not found")

    def for_device(given: dict[str, Any], text: str) -> _Extension:
        name, compiler = given["name"], sass.find("nvcc") if cuda else hip.find_hipcc()
        if compiler is None:
            raise needs(name, "nvcc" if cuda else "hipcc")
        options = [*(given["extra_cuda_cflags"] or ()), *_includes(given["extra_include_paths"], scratch)]
        compile_text = _by_nvcc if cuda else _by_hipcc
        _extensions.extend(compile_text(compiler, architecture, options, text, scratch))
        if not given["is_python_module"]:
            raise NotFollowed(f"the library {name} was compiled, but cannot be loaded")
        return _Extension(name)

    def for_host(given: dict[str, Any], build: Callable[[], Any]) -> Any:
        if not module.is_ninja_available():
            raise needs(given["name"], "ninja")
        made = build()
        return _HostExtension(made) if given["is_python_module"] else made

    def load_inline(*args: Any, **kwargs: Any) -> Any:
        given = _arguments(real_inline, args, kwargs)
        text = "\n".join(_listed(given["cuda_sources"]))
        if not text.strip():
            return for_host(given, lambda: real_inline(*args, **kwargs))
        return for_device(given, text if given["no_implicit_headers"] else _IMPLICIT + text)

    def load(*args: Any, **kwargs: Any) -> Any:
        given = _arguments(real_load, args, kwargs)
        sources = [Path(s) for s in _listed(given["sources"])]
        texts = [s.read_text(encoding="utf-8") for s in sources if s.suffix in (".cu", ".hip")]
        return (
            for_device(given, "\n".join(texts))
            if texts
            else for_host(given, lambda: real_load(*args, **kwargs))
        )

    module.load_inline, module.load = load_inline, load
    return missing


def extensions() -> list[Compiled]:
    """The kernels of the extensions that were compiled so far."""
    return list(_extensions)


def specific(architecture: str) -> str:
    """`sm_90a` for `sm_90`: from there on the newest instructions need an architecture's own variant."""
    return f"{architecture}a" if int(architecture.removeprefix("sm_")) >= 90 else architecture


def _by_nvcc(
    nvcc: str, architecture: str, options: Sequence[str], text: str, scratch: Path
) -> list[Compiled]:
    chosen = [f for f in options if not f.startswith(("-gencode", "-arch", "--generate-code", "--gpu-arch"))]
    command = [nvcc, "-cubin", f"-arch={specific(architecture)}", "-std=c++20", *_TORCH_FLAGS, *chosen]
    cubin = _compile(command, _written(text, scratch)).read_bytes()
    tool = sass.find("cuobjdump")
    names = sass.kernel_names(tool, cubin) if tool else ["extension"]
    return [Compiled(name, "cuda", architecture, name, binaries={"cubin": cubin}) for name in names]


def _by_hipcc(
    hipcc: str, architecture: str, options: Sequence[str], text: str, scratch: Path
) -> list[Compiled]:
    source = hip.translated(_written(text, scratch))
    chosen = [f for f in options if not f.startswith(("--offload-arch", "--amdgpu-target"))]
    code = _compile([*hip.command(hipcc, architecture), *chosen], source).read_bytes()
    isa = hip.assembly(source.parent, architecture)
    return [
        Compiled(name, "hip", architecture, name, texts={"amdgcn": isa}, binaries={"hsaco": code})
        for name in hip.kernel_names(isa)
    ]


def _includes(more: Any, scratch: Path) -> list[str]:
    from torch.utils import cpp_extension

    # A torch that is built for the CPU has the headers of its CUDA part, but for one: how that was built.
    macros = scratch / "include" / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h"
    macros.parent.mkdir(parents=True, exist_ok=True)
    macros.write_text("#pragma once\n#define C10_CUDA_BUILD_SHARED_LIBS\n")
    python = sysconfig.get_path("include")
    folders = [*cpp_extension.include_paths(), python, *_listed(more), str(scratch / "include")]
    return [f"-I{folder}" for folder in folders]


def _written(text: str, scratch: Path) -> Path:
    source = Path(tempfile.mkdtemp(dir=scratch)) / "cuda.cu"
    source.write_text(text, encoding="utf-8")
    return source


def _compile(command: Sequence[str], source: Path) -> Path:
    made, name = source.with_suffix(".out"), Path(command[0]).name
    whole = [*command, "-o", str(made), str(source)]
    done = subprocess.run(whole, capture_output=True, text=True, check=False, cwd=source.parent)
    if done.returncode:
        said = done.stderr + done.stdout
        absent = _ABSENT.search(said)
        if absent:
            raise NotFollowed(f"{name} finds no {absent[1]} here")
        raise CppCompileError(said or f"{name} exited with code {done.returncode}")
    return made


def _arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a call gives to each parameter. Raises TypeError as the function would."""
    given = inspect.signature(function).bind(*args, **kwargs)
    given.apply_defaults()
    return given.arguments


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(value)] if isinstance(value, str | Path) else [str(v) for v in value]
