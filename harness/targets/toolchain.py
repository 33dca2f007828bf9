"""Whether this machine compiles for devices that it does not have."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

from harness.target import Availability


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
