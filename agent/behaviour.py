"""What kind of candidate a source is, for policies that keep variety: its language, its class of tiles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ingest.loaders.kernel_languages import kernels_of

_TILE = re.compile(r"^k?_?(block|tile|chunk|panel|strip|b[mnk]$)", re.IGNORECASE)
_C_TILE = re.compile(
    r"(?:\#\s*define\s+|\b(?:constexpr|const|static|int|long|size_t|unsigned|int64_t|auto)\s+)"
    r"(?P<name>k?_?(?:block|tile|chunk|panel|strip|b[mnk]\b)\w*)\s*(?:=|\s)\s*(?P<value>\d+)\b",
    re.IGNORECASE,
)
_CUDA, _HIP, _OPENCL, _CPP = (
    re.compile(r"\b__(?:global|device|shared)__\b"),
    re.compile(r"#\s*include\s*[<\"]hip/"),
    re.compile(r"\b__kernel\b"),
    re.compile(r"#\s*include\b|\bextern\s+\"C\"|#\s*pragma\s+omp"),
)
# Elements of a tile up to which it is small or medium; the classes differ in what level of memory holds it.
_SMALL, _MEDIUM = 1 << 10, 1 << 14


def behaviour(source: str) -> dict[str, str]:
    """`language` (triton, cuda, cpp …, torch where there is no kernel) and `tile` (none, dynamic, small up to
    1024 elements, medium up to 16384, large) of a candidate. Both are `unknown` for what is no Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {"language": "unknown", "tile": "unknown"}
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    code = "\n".join(text for text in texts if "\n" in text)
    language = _of_code(code) or kernels_of(tree)[1] or "torch"
    return {"language": language, "tile": _class(tree, code)}


def _of_code(code: str) -> str:
    for language, pattern in (("hip", _HIP), ("cuda", _CUDA), ("opencl", _OPENCL), ("cpp", _CPP)):
        if pattern.search(code):
            return language
    return ""


def _class(tree: ast.AST, code: str) -> str:
    sizes: dict[str, int] = {}
    dynamic = False
    for name, value in _bindings(tree):
        if isinstance(value, ast.Constant) and type(value.value) is int and value.value > 0:
            sizes[name.upper()] = max(sizes.get(name.upper(), 1), value.value)
        else:
            dynamic = True
    for match in _C_TILE.finditer(code):
        name = match["name"].upper()
        sizes[name] = max(sizes.get(name, 1), int(match["value"]), 1)
    if not sizes:
        return "dynamic" if dynamic else "none"
    # A tile has two sides that count; what a third one says (the depth of a product) is how it is walked.
    sides = sorted(sizes.values())[-2:]
    elements = sides[0] * sides[-1] if len(sides) == 2 else sides[0]
    return "small" if elements <= _SMALL else "medium" if elements <= _MEDIUM else "large"


def _bindings(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names of tile sizes with what they are given: by assignment, keyword, default or key."""
    for node in ast.walk(tree):
        pairs: list[tuple[str, ast.expr]] = []
        if isinstance(node, ast.Assign):
            pairs = [(t.id, node.value) for t in node.targets if isinstance(t, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            pairs = [(node.target.id, node.value)]
        elif isinstance(node, ast.keyword) and node.arg:
            pairs = [(node.arg, node.value)]
        elif isinstance(node, ast.Dict):
            pairs = [
                (key.value, value)
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
        for name, value in pairs:
            if _TILE.match(name) and not isinstance(
                value, ast.Name
            ):  # a name passes on what is bound elsewhere
                yield name, value
