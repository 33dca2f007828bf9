"""What this machine compiles for devices, whether it has them or not."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

from harness.nvrtc import has_compiler
from harness.target import Availability
from harness.worker.crosscompile.hip import find_hipcc
from harness.worker.packages import has_cute

NAMES = {"cpp": "C++", "triton": "Triton", "cuda": "CUDA C++", "cute": "CuTe DSL", "hip": "HIP C++"}


@functools.cache
def triton_compiles(backend: str) -> Availability:
    """Whether the installed Triton has this back end (`nvidia`, `amd`); Triton is not imported for it."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return False, "Triton is not installed"
    folder = Path(spec.origin).parent / "backends" / backend
    if not (folder / "compiler.py").is_file():
        return False, f"the installed Triton has no {backend} back end"
    return True, ""


@functools.cache
def languages(vendor: str) -> tuple[str, ...]:
    """The languages, keys of NAMES, that candidates for a vendor's devices can be written in here."""
    found = {"triton": importlib.util.find_spec("triton") is not None}
    if vendor == "nvidia":
        found["cuda"] = has_compiler()
        found["cute"] = has_cute()
    else:
        found["hip"] = find_hipcc() is not None
    return tuple(name for name, here in found.items() if here)
