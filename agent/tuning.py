"""Numbers of a kernel that can be tuned, found in its source: tile sizes, num_warps, unroll factors.

Models change structure; which number fits is a question for measurements. A parameter is an integer constant
under a telling name: assigned, a default, an argument of a launch or of `triton.Config`, or a `#define`, a
`constexpr` or an unroll pragma in C-like text inside a string. Places of the same name and value are one
parameter and change together, as a tile size that host and kernel both know must.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

# Words of which one makes a name (`BLOCK_SIZE_M`, `numWarps`, `kTileK`) that of a size of work.
_WORDS = frozenset(
    "block blocks tile tiles warps stages ctas unroll vec vector chunk threads grain stripe panel".split()  # noqa: SIM905
)
_SHORT = frozenset(
    ("bm", "bn", "bk", "mr", "nr", "kr", "mc", "nc", "kc", "split_k", "group_m", "group_size_m")
)
_LAUNCH_ONLY = frozenset(("num_warps", "num_stages", "num_ctas"))
# What is more likely a property of the problem than of the kernel.
_UNLIKELY = frozenset(("num_blocks", "blocks", "n_blocks", "tiles", "num_tiles"))
_SPLIT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_C_NUMBER = re.compile(
    r"\#\s*define[ \t]+(?P<define>\w+)[ \t]+\(?(?P<define_value>\d+)\b"
    r"|\b(?:constexpr|const)\b[^;=\n]*?\b(?P<const>\w+)\s*=\s*(?P<const_value>\d+)\s*[,;}]"
    r"|\#\s*pragma\s+(?:GCC\s+)?unroll\s*\(?\s*(?P<unroll_value>\d+)\b"
)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_UNROLL = "unroll"
_LARGEST = {"warps": 16, "stages": 6, "unroll": 64, "ctas": 8}
_MOST = 4096
_ORDER = ("tile", "block", "chunk", "warps", "vec", "stages", _UNROLL)


@dataclass(frozen=True)
class Parameter:
    """An integer of the source. `spans` are the character ranges at which it stands."""

    name: str
    value: int
    spans: tuple[tuple[int, int], ...]

    def neighbours(self) -> list[int]:
        """Values to try next, the larger one first: doubled and halved, stages one more and one less."""
        words = _words(self.name)
        most = next((limit for word, limit in _LARGEST.items() if word in words), _MOST)
        pair = (self.value + 1, self.value - 1) if "stages" in words else (self.value * 2, self.value // 2)
        return [value for value in pair if 1 <= value <= most]


def find_parameters(source: str) -> list[Parameter]:
    """The tunable parameters, likely important ones first; none for what is not valid Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    text = _Text(source)
    spans: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for name, value, span in _found(tree, text):
        places = spans.setdefault((name, value), [])
        if span not in places:
            places.append(span)
    found = [Parameter(name, value, tuple(sorted(places))) for (name, value), places in spans.items()]
    return sorted(found, key=_importance)


def with_value(source: str, parameter: Parameter, value: int) -> str:
    """The source with another value for a parameter; everything else stays as it is."""
    for start, end in reversed(parameter.spans):
        source = f"{source[:start]}{value}{source[end:]}"
    return source


class _Text:
    """Positions of the syntax tree (line, byte column) as character offsets."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines = _LINE.findall(source)  # not splitlines(): Python's grammar knows fewer line ends
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr) -> tuple[int, int]:
        return self._offset(node.lineno, node.col_offset), self._offset(
            node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        )

    def _offset(self, line: int, column: int) -> int:
        before = self._lines[line - 1].encode("utf-8", "surrogatepass")[:column]
        return self._starts[line - 1] + len(before.decode("utf-8", "surrogatepass"))


def _found(tree: ast.AST, text: _Text) -> Iterator[tuple[str, int, tuple[int, int]]]:
    autotuned, in_fstrings = _left_alone(tree)
    for node in ast.walk(tree):
        if node in autotuned:
            continue
        for name, value in _bindings(node):
            if _tunable(name) and _integer(value):
                span = text.span(value)
                if text.source[slice(*span)].isdigit():  # not 1_024, 0x80 or 1 << 7
                    yield name, int(text.source[slice(*span)]), span
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in in_fstrings:
            yield from _in_c(text, text.span(node))


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names that a node gives to expressions."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for one, value in zip(target.elts, node.value.elts, strict=False):
                    yield _name(one), value
            else:
                yield _name(target), node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield _name(node.target), node.value
    elif isinstance(node, ast.arguments):
        positional = [*node.posonlyargs, *node.args]
        defaults = zip(positional[len(positional) - len(node.defaults) :], node.defaults, strict=True)
        yield from ((arg.arg, value) for arg, value in defaults)
        yield from (
            (arg.arg, value) for arg, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if value
        )
    elif isinstance(node, ast.Call):
        launch = isinstance(node.func, ast.Subscript) or _name(node.func) in ("Config", "partial")
        for keyword in node.keywords:
            if keyword.arg and (launch or keyword.arg in _LAUNCH_ONLY):
                yield keyword.arg, keyword.value
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value


def _in_c(text: _Text, span: tuple[int, int]) -> Iterator[tuple[str, int, tuple[int, int]]]:
    literal = text.source[slice(*span)]
    for match in _C_NUMBER.finditer(literal):
        for group in ("define", "const", "unroll"):
            if match[f"{group}_value"] is not None:
                name = _UNROLL if group == "unroll" else match[group]
                if _tunable(name):
                    start, end = match.span(f"{group}_value")
                    yield name, int(match[f"{group}_value"]), (span[0] + start, span[0] + end)


def _left_alone(tree: ast.AST) -> tuple[set[ast.AST], set[ast.AST]]:
    """Nodes below an autotuner, which measures its own choices, and of f-strings, which have no place."""
    autotuned: set[ast.AST] = set()
    pieces: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) == "autotune":
            configs = [n for n in ast.walk(node) if isinstance(n, ast.Call) and _name(n.func) == "Config"]
            if len(configs) > 1:
                autotuned.update(ast.walk(node))
        elif isinstance(node, ast.JoinedStr):
            pieces.update(ast.walk(node))
    return autotuned, pieces


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _integer(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 1


def _words(name: str) -> set[str]:
    return {word.lower() for word in _SPLIT.findall(name)}


def _tunable(name: str) -> bool:
    lower = name.lower()
    if lower in _UNLIKELY:
        return False
    return lower in _SHORT or bool(_words(name) & _WORDS)


def _importance(parameter: Parameter) -> tuple[int, int]:
    words = _words(parameter.name)
    rank = next((i for i, word in enumerate(_ORDER) if word in words or word + "s" in words), len(_ORDER))
    return rank, parameter.spans[0][0]
