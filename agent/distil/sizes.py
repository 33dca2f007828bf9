"""One problem at other sizes, and what two files of one problem have in common."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agent.novelty import program_digest

_GENERATORS = ("get_inputs", "get_init_inputs")
_SMALLEST = 16  # below that a number is rather a dimension's index, a kernel's width or a group count
_FAMILIES = 3


@dataclass(frozen=True)
class _Number:
    """An integer of the text: its position in bytes."""

    value: int
    start: int
    end: int


def problem_identity(source: str) -> str:
    """sha256 of a problem up to sizes, names, comments and META: the same for all its variants.

    Raises SyntaxError.
    """
    tree = ast.parse(source)
    tree.body = [n for n in tree.body if not (isinstance(n, ast.Assign) and "META" in _names(n))]
    for node in _numbers(tree):
        node.value = 0
    return program_digest(ast.unparse(tree))


def variants(source: str) -> Iterator[tuple[str, str]]:
    """(name, source) of a problem with other sizes, the most telling first; not all of them need to work.

    Sizes are integers from 16 on that the module assigns to a name or that `get_inputs` and
    `get_init_inputs` write out; equal ones change together. `odd-…` leaves nothing divisible by 2.
    """
    text = source.encode("utf-8", "surrogatepass")
    numbers = [_located(node, text) for node in _numbers(ast.parse(source))]
    found = [number for number in numbers if number.value >= _SMALLEST]
    families = sorted({number.value for number in found}, reverse=True)[:_FAMILIES]
    changes: list[tuple[str, Callable[[int], int], list[int]]] = []
    if len(families) > 1:
        changes.append(("odd-all", _odd, families))
    for size in families:
        changes += [(f"half-{size}", _half, [size]), (f"odd-{size}", _odd, [size])]
    changes += [(f"twice-{size}", _twice, [size]) for size in families[:1]]
    for name, change, sizes in sorted(changes, key=lambda c: not c[0].startswith("odd")):
        yield name, _rewritten(text, [n for n in found if n.value in sizes], change)


def _half(size: int) -> int:
    return size // 2


def _twice(size: int) -> int:
    return size * 2


def _odd(size: int) -> int:
    return size * 3 // 4 | 1


def _rewritten(text: bytes, numbers: list[_Number], change: Callable[[int], int]) -> str:
    for number in sorted(numbers, key=lambda n: -n.start):
        text = text[: number.start] + str(change(number.value)).encode() + text[number.end :]
    return text.decode("utf-8", "surrogatepass")


def _numbers(tree: ast.Module) -> Iterator[ast.Constant]:
    """Integers that may be sizes: assigned at module level, or anywhere in the generators of inputs."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and "META" not in _names(node):
            if node.value is not None and _plain(node.value):
                yield from _integers(node.value)
        elif isinstance(node, ast.FunctionDef) and node.name in _GENERATORS:
            yield from _integers(node)


def _plain(value: ast.expr) -> bool:
    """Arithmetic and sequences of numbers; no call, whose arguments mean anything."""
    allowed = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.operator, ast.unaryop, ast.Name)
    return all(isinstance(n, (*allowed, ast.expr_context)) for n in ast.walk(value))


def _integers(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            yield node


def _names(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}


def _located(node: ast.Constant, text: bytes) -> _Number:
    starts = [0, *(match.end() for match in re.finditer(rb"\r\n|\r|\n", text))]
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    value = node.value
    assert isinstance(value, int)
    return _Number(
        value, starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
    )
