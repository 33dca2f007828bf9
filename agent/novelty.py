"""When are two candidates the same program? Digests that ignore names, comments and formatting."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from functools import lru_cache
from typing import Any

# Names that the harness looks up in a candidate's module; renaming them changes what the file means.
_INTERFACE = frozenset({"ModelNew", "forward"})

_C_TOKEN = re.compile(
    r"""
      (?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))
    | (?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)
    | (?P<raw>R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)")
    | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    | (?P<word>[A-Za-z_]\w*)
    | (?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
    | (?P<operator><<<|>>>|<<=|>>=|\.\.\.|->\*|<=>|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\S)
    | (?P<space>\s+)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_DIRECTIVE_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@lru_cache(maxsize=64)  # a step asks several times about one source
def program_digest(source: str) -> str:
    """sha256 of the candidate up to names bound in it, comments, docstrings and formatting.

    C-like source inside string constants is compared token by token. Attribute, method and keyword names
    stay: they are an interface (state-dict keys, exported functions). Other text is hashed as it is.
    """
    try:
        tree = ast.parse(source)
        normal = ast.dump(_Normaliser(_bound_names(tree)).visit(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _sha256("text:" + source)
    return _sha256("program:" + normal)


def genome_digest(genome: dict[str, Any]) -> str:
    """sha256 of a genome's canonical JSON."""
    return _sha256("genome:" + json.dumps(genome, sort_keys=True, separators=(",", ":"), allow_nan=False))


def normalise_c(text: str) -> str:
    """C-like source as one token sequence: no comments, white space reduced, directives on own lines."""
    parts: list[str] = []
    for match in _C_TOKEN.finditer(text):
        kind = match.lastgroup if match.lastgroup != "tag" else "raw"
        if kind in ("comment", "space"):
            continue
        if kind == "directive":
            line = _DIRECTIVE_COMMENT.sub(" ", match.group().replace("\\\n", " "))
            # `#define f(x)` and `#define f (x)` differ, so white space is reduced, not removed.
            parts.append("\n" + " ".join(line.split()) + "\n")
        else:
            parts.append(match.group())
    return " ".join(parts)


def _looks_like_c(text: str) -> bool:
    return "\n" in text and ";" in text and "{" in text


def _bound_names(tree: ast.AST) -> dict[str, str]:
    """Names that the file itself binds, numbered in order of appearance; no methods, no class attributes."""
    order: dict[str, str] = {}

    def bind(name: str | None) -> None:
        if name and name not in _INTERFACE and name not in order:
            order[name] = f"§{len(order)}"

    def visit(node: ast.AST, in_class: bool) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not in_class:
                bind(node.name)
        elif isinstance(node, ast.arg):
            bind(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            if not in_class:
                bind(node.id)
        elif isinstance(node, ast.alias):
            if node.asname:
                bind(node.asname)
        elif isinstance(node, ast.ExceptHandler):
            bind(node.name)
        if isinstance(node, ast.ClassDef):
            for child in ast.iter_child_nodes(node):
                visit(child, child in node.body)
        else:
            for child in ast.iter_child_nodes(node):
                visit(child, False)

    visit(tree, False)
    return order


class _Normaliser(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._names.get(node.id, node.id), ast.Load())

    def visit_arg(self, node: ast.arg) -> ast.AST:
        self.generic_visit(node)
        node.arg = self._names.get(node.arg, node.arg)
        return node

    def visit_alias(self, node: ast.alias) -> ast.AST:
        if node.asname:
            node.asname = self._names.get(node.asname, node.asname)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.generic_visit(node)
        if node.name:
            node.name = self._names.get(node.name, node.name)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        # The constant pieces of an f-string are fragments, not programs: names inside the braces only.
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                self.visit(value)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and _looks_like_c(node.value):
            return ast.Constant(normalise_c(node.value))
        return ast.Constant(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._definition(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._definition(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._definition(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        node.body = _without_docstring(node.body)
        self.generic_visit(node)
        return node

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.AST:
        node.body = _without_docstring(node.body)
        self.generic_visit(node)
        node.name = self._names.get(node.name, node.name)
        return node


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    is_doc = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
    return body[1:] if is_doc else body


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
