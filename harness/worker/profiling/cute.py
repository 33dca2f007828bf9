"""Kernels that the CuTe DSL has compiled in this process. Names are those of nvidia-cutlass-dsl 4.8."""

from __future__ import annotations

import gc
import hashlib
import math
import re
import sys
from typing import Any

from harness.worker.profiling.static import Compiled

_ENTRY = re.compile(r"^(?:\.\w+\s+)*\.entry\s+(\w+)\((.*?)^\{", re.MULTILINE | re.DOTALL)
_THREADS = re.compile(r"\.(?:req|max)ntid ([\d, ]+)")
_WARP = 32


def cute_kernels() -> list[Compiled]:
    """Those of the functions that are alive, compiled for the current device."""
    executor = sys.modules.get("cutlass.base_dsl.jit_executor")
    if executor is None:
        return []
    import torch

    major, minor = torch.cuda.get_device_capability()
    functions = [f for f in gc.get_objects() if issubclass(type(f), executor.JitCompiledFunction)]
    found = {k.key: k for f in functions for k in kernels_of(f, f"sm_{major}{minor}")}
    return sorted(found.values(), key=lambda kernel: kernel.name)


def kernels_of(function: Any, architecture: str) -> list[Compiled]:
    """The kernels of one compiled function; PTX, and the size of blocks, where the package was asked to keep
    the former.
    """
    cubin = _cubin(function.ir_module)
    if not cubin:
        return []
    ptx = function.__ptx__ or ""
    heads: dict[str, str] = dict(_ENTRY.findall(ptx))
    found = []
    for name in function.kernel_info:
        threads = _THREADS.search(heads.get(name, ""))
        block = [int(n) for n in threads[1].split(",")] if threads else []
        found.append(
            Compiled(
                name=name,
                language="cute",
                architecture=architecture,
                key=f"{name} {hashlib.sha256(cubin).hexdigest()[:16]}",
                config={"block": block} if block else {},
                warps=-(-math.prod(block) // _WARP) if block else None,
                texts={"ptx": ptx} if ptx else {},
                binaries={"cubin": cubin},
            )
        )
    return found


def _cubin(module: Any) -> bytes:
    """The machine code inside of a compiled module, where a constant holds it."""
    from cutlass._mlir import ir

    for operation in module.body.operations if module is not None else ():
        attributes = operation.attributes
        if operation.operation.name != "llvm.mlir.global" or "value" not in attributes:
            continue
        value = attributes["value"]
        data: bytes = value.value_bytes if isinstance(value, ir.StringAttr) else b""
        start = data.find(b"\x7fELF")
        if start >= 0:
            return data[start:]
    return b""
