"""Which kernel language a Python file is written in, by what it imports and decorates with."""

from __future__ import annotations

import ast
from collections.abc import Iterator

# The languages that are embedded in Python, by the modules that bring them; the longest prefix decides.
_MODULES = {
    "triton.experimental.gluon": "gluon",
    "triton": "triton",
    "cutlass.cute": "cute",
    "cutlass": "cute",
    "jax.experimental.pallas": "pallas",
    "neuronxcc.nki": "nki",
    "nki": "nki",
    "ttl": "tt-lang",
    "helion": "helion",
    "numba.cuda": "cuda-python",
    "numba_cuda": "cuda-python",
    "cuda.core": "cuda-python",
    "cuda.bindings": "cuda-python",
    "cuda.tile": "cuda-python",
    "cuda.coop": "cuda-python",
    "cupy": "cuda-python",
}
_DECORATORS = {
    "jit", "kernel", "autotune", "heuristics", "operation", "compute", "datamovement", "baremetal",
    "benchmark",
}  # fmt: skip
_UNKNOWN_ORIGIN = {"jit", "kernel", "autotune"}  # taken for a kernel's where no import says otherwise
# Calls that take a kernel, or its source.
_CALLS = {
    "pallas_call": "pallas",
    "RawKernel": "cuda-python",
    "RawModule": "cuda-python",
    "load_inline": "",
    "load_cpp": "",
    "load_cuda": "",
}


def kernels_of(tree: ast.Module) -> tuple[dict[str, str], str | None]:
    """The functions that are kernels, by name, with their language ("" where nothing tells it); and the
    language of the file: that of most kernels, else of the imports, None for plain Python.
    """
    aliases: dict[str, str] = {}
    decorated: list[tuple[str, str]] = []
    kernels: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            decorated += [(node.name, _dotted(decorator)) for decorator in node.decorator_list]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            aliases.update(_imported(node))
        elif isinstance(node, ast.Call):
            last = _dotted(node.func).rpartition(".")[2]
            if last in _CALLS:
                kernels[last] = _CALLS[last]
    for name, decorator in decorated:
        language = _of_decorator(decorator, aliases)
        if language is not None and not kernels.get(name):
            kernels[name] = language
    languages = [x for x in kernels.values() if x] or [
        x for x in map(_of_module, aliases.values()) if x is not None
    ]
    # Of several equally frequent ones the more special: its module lies inside the other's.
    depth = {x: max(m.count(".") for m, own in _MODULES.items() if own == x) for x in set(languages)}
    return kernels, max(sorted(depth), key=lambda x: (languages.count(x), depth[x]), default=None)


def _of_decorator(name: str, aliases: dict[str, str]) -> str | None:
    first, _, rest = name.partition(".")
    last = name.rpartition(".")[2]
    if last not in _DECORATORS:
        return None
    origin = aliases.get(first)
    if origin is None:
        return _of_module(name) or ("" if last in _UNKNOWN_ORIGIN else None)
    return _of_module(f"{origin}.{rest}" if rest else origin)


def _of_module(name: str) -> str | None:
    matching = [m for m in _MODULES if name == m or name.startswith(m + ".")]
    return _MODULES[max(matching, key=len)] if matching else None


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Local names with the full names that the import gives them."""
    if isinstance(node, ast.ImportFrom):
        if node.module and not node.level:
            for name in node.names:
                yield name.asname or name.name, f"{node.module}.{name.name}"
        return
    for name in node.names:
        if name.asname:
            yield name.asname, name.name
        else:  # `import a.b` binds `a`, but says that `a.b` is used
            yield name.name.partition(".")[0], name.name.partition(".")[0]
            yield name.name, name.name


def _dotted(node: ast.expr) -> str:
    """`triton.jit` of `@triton.jit` and of `@triton.jit(debug=True)`; "" for anything else."""
    if isinstance(node, ast.Call):
        # `functools.partial(pl.kernel, …)` decorates with what it is given first.
        if node.args and _dotted(node.func).rpartition(".")[2] == "partial":
            return _dotted(node.args[0])
        node = node.func
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return f"{base}.{node.attr}" if base else node.attr
    return node.id if isinstance(node, ast.Name) else ""
