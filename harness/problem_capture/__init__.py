"""Makes a problem of a user's own module: `capture(module, inputs, "problem.py")`.

Importing this is light; torch is loaded by the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.problem_capture.construction import record_constructors
    from harness.problem_capture.of_module import Captured, capture

_HOMES = {
    "Captured": "harness.problem_capture.of_module",
    "capture": "harness.problem_capture.of_module",
    "record_constructors": "harness.problem_capture.construction",
}

__all__ = ["Captured", "capture", "record_constructors"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'harness.problem_capture' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
