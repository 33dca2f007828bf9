"""The C-like text in the strings of a Python file, and what in Python refers to its names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from agent.novelty.c_code import HOLE, CNames, looks_like_c, normalise_c

WORD = re.compile(r"[A-Za-z_]\w*")
# Calls that make text of text.
_TEXT_CALLS = frozenset({"format", "replace", "dedent", "strip", "join", "Template", "substitute"})


class Texts:
    """The C-like text of a file and what in Python refers to its names."""

    def __init__(self, tree: ast.Module) -> None:
        self._libraries: set[str] = set()
        self._sources: set[str] = set()
        texts = [text for node in strings(tree) if looks_like_c(text := text_of(node) or "")]
        assigns = [n for n in ast.walk(tree) if isinstance(n, ast.Assign)]
        for assign in assigns:
            parts = list(ast.walk(assign.value))
            calls = [c for c in parts if isinstance(c, ast.Call) and last_name(c.func) not in _TEXT_CALLS]
            if not calls and any(looks_like_c(text_of(c) or "") for c in parts):
                self._sources.update(filter(None, map(place, assign.targets)))
        for assign in assigns:
            if isinstance(assign.value, ast.Call) and self.builds(assign.value):
                self._libraries.update(filter(None, map(place, assign.targets)))
        linked, others = self._references(tree)
        self.names = CNames(keep=others, linked=linked - others)
        self._normal = {text: normalise_c(text, self.names) for text in dict.fromkeys(texts)}
        # Strings where functions of the text are named: only there is a name more than a word.
        self._linked_strings = {id(node) for node in self._linked_nodes(tree)}

    def builds(self, call: ast.Call) -> bool:
        """Whether a call is given C-like text: it compiles it, and what comes of it has its functions."""
        parts = [*call.args, *(keyword.value for keyword in call.keywords)]
        return any(
            looks_like_c(text_of(c) or "") or (place(c) in self._sources)
            for part in parts
            for c in ast.walk(part)
        )

    def is_library(self, node: ast.expr) -> bool:
        return place(node) in self._libraries or (isinstance(node, ast.Call) and self.builds(node))

    def constant(self, node: ast.Constant) -> Any:
        value = node.value
        if not isinstance(value, str):
            return value
        if id(node) in self._linked_strings:
            return self.names.top.get(value, value)
        return self.normal(value)

    def normal(self, text: str) -> str:
        return self._normal.get(text, text)

    def _linked_nodes(self, tree: ast.AST) -> Iterator[ast.AST]:
        for node in ast.walk(tree):
            inside: list[ast.AST] = []
            if isinstance(node, ast.Call):
                root = node.func.value if isinstance(node.func, ast.Attribute) else None
                asks = last_name(node.func) == "getattr" and bool(node.args) and self.is_library(node.args[0])
                if self.builds(node) or asks or (root is not None and self.is_library(root)):
                    inside = [*node.args, *(k.value for k in node.keywords if k.arg != "name")]
            elif isinstance(node, ast.Subscript) and self.is_library(node.value):
                inside = [node.slice]
            for part in inside:
                yield from (c for c in ast.walk(part) if is_word(c))

    def _references(self, tree: ast.AST) -> tuple[set[str], set[str]]:
        """Words by which Python refers to C-like text: where it surely does, and where it may."""
        nodes = list(self._linked_nodes(tree))
        linked, ids = {text_of(node) or "" for node in nodes}, {id(node) for node in nodes}
        others: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                (linked if self.is_library(node.value) else others).add(node.attr)
        for node in strings(tree):
            text = text_of(node) or ""
            if id(node) not in ids and not looks_like_c(text):
                others.update(WORD.findall(text))
        return linked, others


def last_name(node: ast.expr) -> str:
    """What a name or an attribute ends in; "" for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def place(node: ast.AST) -> str:
    """A variable or an attribute of `self` that can hold something; "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return "self." + node.attr
    return ""


def is_word(node: ast.AST) -> bool:
    """Whether it is a string that may name something."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(WORD.fullmatch(node.value))


def strings(tree: ast.AST) -> Iterator[ast.AST]:
    """Strings that are no comments: whole ones, formatted or not."""
    silent = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    silent |= {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    for node in ast.walk(tree):
        if id(node) not in silent and text_of(node) is not None:
            yield node


def text_of(node: ast.AST) -> str | None:
    """The text of a string, of a formatted one with holes; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return with_holes(node)[0] if isinstance(node, ast.JoinedStr) else None


def with_holes(node: ast.JoinedStr) -> tuple[str, list[ast.FormattedValue]]:
    """An f-string's text, with a word for each of its values."""
    text = ""
    holes: list[ast.FormattedValue] = []
    for value in node.values:
        if isinstance(value, ast.FormattedValue):
            text += f"{HOLE}{len(holes)}_"
            holes.append(value)
        elif isinstance(value, ast.Constant):
            text += str(value.value)
    return text, holes
