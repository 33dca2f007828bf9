"""A Python program up to the names it binds, comments, docstrings, formatting and the order of imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.novelty.c_code import HOLE
from agent.novelty.texts import Texts, is_word, last_name, strings, text_of, with_holes

# Names that the harness looks up in a candidate's module; renaming them changes what the file means.
_INTERFACE = frozenset({"ModelNew", "forward"})
# Whoever looks names up in text may see any of them.
_BY_NAME = frozenset({"eval", "exec", "globals", "locals", "vars", "compile"})
_HOLES = re.compile(HOLE + r"(\d+)_")
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def normal_form(source: str) -> str:
    """The same text for the same program. Raises what `ast.parse` raises."""
    tree = ast.parse(source)
    return ast.dump(_Normaliser(tree).visit(tree))


@dataclass
class _Scope:
    names: dict[str, str]
    in_class: bool = False
    functions: dict[str, list[str]] = field(default_factory=dict)  # with their arguments


class _Normaliser(ast.NodeTransformer):
    def __init__(self, tree: ast.Module) -> None:
        self._text = Texts(tree)
        self._scopes: list[_Scope] = []
        self._frozen = any(isinstance(n, ast.Name) and n.id in _BY_NAME for n in ast.walk(tree))
        self._plain = _plain_arguments(tree)
        self._spelled: dict[str, str] = {}

    # --- scopes ---

    def _open(self, body: Iterable[ast.AST], arguments: Sequence[str] = (), in_class: bool = False) -> None:
        scope = _Scope({}, in_class)
        depth = sum(not s.in_class for s in self._scopes)
        if not self._frozen:
            for index, name in enumerate(arguments):
                scope.names[name] = self._argument(name, f"§{depth}.{index}")
        for node in body:
            for child in _own(node):
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    scope.functions[child.name] = _arguments(child.args)
                for name, label in _bindings(child):
                    if name in scope.names or self._frozen:
                        continue
                    if in_class or (depth == 0 and name in _INTERFACE):
                        scope.names[name] = name
                    else:
                        scope.names[name] = label or f"§{depth}.{len(scope.names)}"
        outer = {
            n
            for node in body
            for c in _own(node)
            if isinstance(c, ast.Global | ast.Nonlocal)
            for n in c.names
        }
        for name in outer:
            scope.names.pop(name, None)
        self._scopes.append(scope)

    def _argument(self, name: str, label: str) -> str:
        """An argument is known by its place, unless strings or unknown callers know it by its name."""
        if name in self._plain.raw:
            return name
        if name in self._plain.spelled:
            return self._spelled.setdefault(name, f"§w{len(self._spelled)}")
        return label

    def _name(self, name: str) -> str:
        for place, scope in enumerate(reversed(self._scopes)):
            if name in scope.names and (place == 0 or not scope.in_class):
                return scope.names[name]
        return name

    def _called(self, node: ast.expr) -> list[str]:
        """The arguments of the function of this file that a call surely calls."""
        if isinstance(node, ast.Subscript):  # kernel[grid](…)
            node = node.value
        if isinstance(node, ast.Name):
            for place, scope in enumerate(reversed(self._scopes)):
                if node.id in scope.names and (place == 0 or not scope.in_class):
                    return scope.functions.get(node.id, [])
        return []

    # --- nodes that bind or open a scope ---

    def visit_Module(self, node: ast.Module) -> ast.AST:
        globals_ = [
            ast.Name(n, ast.Store()) for c in ast.walk(node) if isinstance(c, ast.Global) for n in c.names
        ]
        self._open([*node.body, *globals_])
        return ast.Module(self._body(node.body), [])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.name = self._name(node.name)
        node.decorator_list = [self._decorator(d) for d in node.decorator_list]
        node.returns = self.visit(node.returns) if node.returns else None
        self._signature(node.args)
        self._open(node.body, _arguments(node.args))
        self._label(node.args)
        node.body = self._body(node.body)
        self._scopes.pop()
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self._signature(node.args)
        self._open([node.body], _arguments(node.args))
        self._label(node.args)
        node.body = self.visit(node.body)
        self._scopes.pop()
        return node

    def _signature(self, args: ast.arguments) -> None:
        """Defaults and annotations are read outside of the function."""
        args.defaults = [self.visit(d) for d in args.defaults]
        args.kw_defaults = [d and self.visit(d) for d in args.kw_defaults]
        for arg in _every(args):
            arg.annotation = self.visit(arg.annotation) if arg.annotation else None
            arg.type_comment = None

    def _label(self, args: ast.arguments) -> None:
        for arg in _every(args):
            arg.arg = self._name(arg.arg)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._name(node.name)
        for part in ("decorator_list", "bases", "keywords"):
            setattr(node, part, [self.visit(item) for item in getattr(node, part)])
        self._open(node.body, in_class=True)
        node.body = self._body(node.body)
        self._scopes.pop()
        return node

    def _comprehension(self, node: _Comprehension) -> ast.AST:
        first = node.generators[0]
        first.iter = self.visit(first.iter)
        self._open([generator.target for generator in node.generators])
        for number, generator in enumerate(node.generators):
            generator.target = self.visit(generator.target)
            if number:
                generator.iter = self.visit(generator.iter)
            generator.ifs = [self.visit(test) for test in generator.ifs]
        for part in ("elt", "key", "value"):
            if hasattr(node, part):
                setattr(node, part, self.visit(getattr(node, part)))
        self._scopes.pop()
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def _body(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Statements without those that say nothing; imports next to each other in one order."""
        said = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        said = [s for s in said if not isinstance(s, ast.Pass)]
        result: list[ast.stmt] = []
        run: dict[str, None] = {}
        for statement in [*said, None]:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                run.update((origin, None) for _, origin, _ in _imported(statement))
                continue
            result += [ast.Expr(ast.Constant("import " + origin)) for origin in sorted(run)]
            run = {}
            if statement is not None:
                result.append(self.visit(statement))
        return result

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, self._body(block))
        for name, value in ast.iter_fields(node):
            if name in ("body", "orelse", "finalbody") and isinstance(value, list):
                continue
            if isinstance(value, list):
                setattr(node, name, [self.visit(v) if isinstance(v, ast.AST) else v for v in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        return node

    # --- names ---

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._name(node.id), ast.Load())

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> ast.AST:
        node.names = sorted(self._name(name) for name in node.names)
        return node

    visit_Nonlocal = visit_Global  # noqa: N815

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        if node.name:
            node.name = self._name(node.name)
        return self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> ast.AST:
        if node.name:
            node.name = self._name(node.name)
        return self.generic_visit(node)

    visit_MatchStar = visit_MatchAs  # noqa: N815

    def visit_Call(self, node: ast.Call) -> ast.AST:
        labels: dict[str, str] = {}
        if not self._frozen:
            labels = {n: self._argument(n, f"§k{i}") for i, n in enumerate(self._called(node.func))}
        config = last_name(node.func) == "Config"
        builds = self._text.builds(node)
        for keyword in node.keywords:
            if builds and keyword.arg == "name":  # what an extension is called
                keyword.value = ast.Constant("")
            if keyword.arg is not None:
                keyword.arg = labels.get(keyword.arg, keyword.arg)
        if config and node.args and isinstance(node.args[0], ast.Dict):
            node.args[0].keys = [self._string(key) if key else None for key in node.args[0].keys]
        return self.generic_visit(node)

    def _decorator(self, node: ast.expr) -> ast.expr:
        for child in ast.walk(node):
            if isinstance(child, ast.Constant):
                child.value = self._spell(child.value)
        visited: ast.expr = self.visit(node)
        return visited

    def _string(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Constant):
            node.value = self._spell(node.value)
        return node

    def _spell(self, value: Any) -> Any:
        """A string that is an argument's name where such names are meant, as the argument is labelled."""
        return self._argument(value, value) if isinstance(value, str) and not self._frozen else value

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant):
            node.slice = self._string(node.slice)
        return self.generic_visit(node)

    # --- text ---

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if self._text.is_library(node.value):
            node.attr = self._text.names.top.get(node.attr, node.attr)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant(self._text.constant(node))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        text, holes = with_holes(node)
        normal = self._text.normal(text)
        parts: list[ast.expr] = [ast.Constant(normal)]
        shown = [int(match.group(1)) for match in _HOLES.finditer(normal)]
        return ast.JoinedStr([*parts, *(self.visit(holes[i]) for i in shown if i < len(holes))])


@dataclass(frozen=True)
class _Plain:
    """Argument names by how else they are known: `raw` ones stay, `spelled` ones are numbered by spelling."""

    raw: set[str]
    spelled: set[str]


def _plain_arguments(tree: ast.Module) -> _Plain:
    """What may know an argument by its name: keywords of calls to who knows whom, and strings."""
    imports = {name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)
               for name, _, _ in _imported(node)}  # fmt: skip
    functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    meant: set[int] = set()  # strings that surely are names of arguments
    raw: set[str] = set()
    spelled: set[str] = set()
    for node in ast.walk(tree):
        found: list[ast.AST] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found = [c for d in node.decorator_list for c in ast.walk(d)]
        elif isinstance(node, ast.Call):
            if last_name(node.func) == "Config" and node.args and isinstance(node.args[0], ast.Dict):
                found = [key for key in node.args[0].keys if key]
            callee = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            root = callee
            while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
                root = root.func if isinstance(root, ast.Call) else root.value
            of_import = isinstance(root, ast.Name) and root.id in imports
            local = isinstance(callee, ast.Name) and callee.id in functions
            hands_on = any(
                isinstance(c, ast.Name) and c.id in functions for a in node.args for c in ast.walk(a)
            )
            if (not of_import and not local) or hands_on:
                raw.update(keyword.arg for keyword in node.keywords if keyword.arg)
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            found = [node.slice]
        for item in found:
            if isinstance(item, ast.Constant) and isinstance(item.value, str):
                meant.add(id(item))
                spelled.add(item.value)
    raw.update(text_of(node) or "" for node in strings(tree) if id(node) not in meant and is_word(node))
    defined = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    # Two functions of one name: nobody knows which one is called.
    twice = {n.name for n in defined if sum(m.name == n.name for m in defined) > 1}
    raw |= {name for n in defined if n.name in twice for name in _arguments(n.args)}
    return _Plain(raw, spelled - raw)


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is below it in the same scope, in order."""
    yield node
    if isinstance(node, _Definition):
        for decorator in node.decorator_list:
            yield from _own(decorator)
    elif isinstance(node, ast.Lambda):
        return
    elif isinstance(node, _Comprehension):
        for inner in ast.walk(node):  # `:=` binds outside of it
            if isinstance(inner, ast.NamedExpr):
                yield inner.target
    else:
        for child in ast.iter_child_nodes(node):
            yield from _own(child)


def _bindings(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that a node binds, with a label where their origin says more than their order."""
    if isinstance(node, _Definition):
        yield node.name, ""
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
        yield node.id, ""
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((name, f"§<{meant}>") for name, _, meant in _imported(node))
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name, ""


def _imported(node: ast.Import | ast.ImportFrom) -> list[tuple[str, str, str]]:
    """Of everything that an import brings: the name it binds, what is imported, and what the name means."""
    if isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        return [(a.asname or a.name, f"{module}.{a.name}", f"{module}.{a.name}") for a in node.names]
    # `import a.b` binds `a`.
    bound = [(a, a.asname or a.name.split(".")[0]) for a in node.names]
    return [(name, a.name, a.name if a.asname else name) for a, name in bound]


def _every(args: ast.arguments) -> list[ast.arg]:
    rest = [a for a in (args.vararg, args.kwarg) if a]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *rest]


def _arguments(args: ast.arguments) -> list[str]:
    return [arg.arg for arg in _every(args)]
