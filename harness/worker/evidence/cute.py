"""Where launches of the CuTe DSL pass: methods of the classes of what it has compiled.

Names are those of nvidia-cutlass-dsl 4.8. Where the package is not loaded, there is nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

_CLASSES = {
    "cutlass.base_dsl.jit_executor": ("JitExecutor", "JitCompiledFunction"),
    "cutlass.cutlass_dsl.cutlass_function": ("CallableFunction",),
}
_METHODS = ("__call__", "run_compiled_program")
SUCCESS = 0  # what a launch returns: a CUDA error code


def launchers() -> Iterator[tuple[type, str]]:
    """Classes and the names of their methods of which each launch calls at least one."""
    for module, names in _CLASSES.items():
        found = (getattr(sys.modules.get(module), name, None) for name in names)
        for kind in found:
            for one in _family(kind) if isinstance(kind, type) else ():
                yield from ((one, method) for method in _METHODS if method in vars(one))


def name_of(function: Any) -> str:
    """What to call a launch of one of these objects."""
    holder = getattr(function, "jit_module", None) or function
    arguments = getattr(holder, "execution_args", None)
    name = getattr(arguments, "function_name", None) or getattr(function, "function_name", "function")
    return f"cute:{name}"


def _family(kind: type) -> Iterator[type]:
    yield kind
    children: list[type] = kind.__subclasses__()
    for child in children:
        yield from _family(child)
