"""Where the names of a Python file point to: a small abstract interpreter over its syntax tree.

It does not run anything and does not follow the order of statements: each variable holds all values that are
ever bound to it, through assignments, loops, parameters, results and attributes of own classes, until nothing
is added any more. What it does not understand is the empty set. Sizes are limited, so that it always ends.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.worker.guard import calls as guard_calls
from harness.worker.guard.values import (
    MAX_VALUES,
    NOTHING,
    Instance,
    Items,
    Own,
    Partial,
    Path,
    Table,
    Text,
    Value,
    Values,
    combined,
    element,
    elements,
    joined,
    path,
    sliced,
    spelled,
    texts,
    union,
)

MAX_WORK = 3_000_000  # expressions looked at; ordinary files need a few thousand
MAX_TURNS = 10  # over the whole file: how long a chain of bindings written backwards can be
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_APPLY = {"builtins.map", "itertools.starmap", "functools.reduce", "builtins.filter"}
_FILLS = {"append", "add", "appendleft", "insert", "extend", "update", "setdefault"}


@dataclass
class Invocation:
    """One function that a call may reach, with the values of its arguments."""

    function: Value
    arguments: list[Values]
    keywords: dict[str, Values] = field(default_factory=dict)

    def argument(self, position: int, keyword: str = "") -> Values:
        if position < len(self.arguments):
            return self.arguments[position]
        return self.keywords.get(keyword, NOTHING)


class TooComplex(Exception):
    """The file would take too long to follow."""


class Flow:
    """The values of every expression of a file. Text that a file executes sees the names of `outer`."""

    def __init__(self, tree: ast.Module, outer: Flow | None = None) -> None:
        self.tree = tree
        self.outer = outer
        self.depth: int = outer.depth + 1 if outer else 0
        self.scope_of: dict[ast.AST, ast.AST] = {}
        self.parent: dict[ast.AST, ast.AST] = {}
        self.names: dict[ast.AST, set[str]] = {}
        self.variables: dict[tuple[ast.AST, str], Values] = {}
        self.attributes: dict[str, Values] = {}
        self.results: dict[ast.AST, Values] = {}
        self.nodes = list(self._place(tree, tree))
        self._memory: dict[ast.AST, Values] = {}
        self._work = 0
        self._changed = True
        for _ in range(MAX_TURNS):
            if not self._changed:
                break
            self._changed = False
            for node in self.nodes:
                self._memory.clear()
                self._bind(node)
        self._memory.clear()

    # -- scopes ----------------------------------------------------------------------------------------

    def _place(self, node: ast.AST, scope: ast.AST) -> Iterator[ast.AST]:
        """All nodes below one in source order; notes their scopes and the names that each scope binds."""
        own = self.names.setdefault(scope, set())
        for child in ast.iter_child_nodes(node):
            self.scope_of[child], self.parent[child] = scope, node
            yield child
            inner = scope
            if isinstance(child, ast.Name) and not isinstance(child.ctx, ast.Load):
                own.add(child.id)
            elif isinstance(child, ast.arg):
                own.add(child.arg)
            elif isinstance(child, ast.alias):
                own.add(child.asname or child.name.partition(".")[0])
            elif isinstance(child, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and child.name:
                own.add(child.name)
            elif isinstance(child, (*FUNCTIONS, ast.ClassDef)):
                if not isinstance(child, ast.Lambda):
                    own.add(child.name)
                inner = child
            yield from self._place(child, inner)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Global | ast.Nonlocal):
                own.difference_update(child.names)

    def home(self, name: str, scope: ast.AST) -> ast.AST | None:
        """The scope that binds `name` as seen from `scope`."""
        here: ast.AST | None = scope
        while here is not None:
            if name in self.names.get(here, ()) and (here is scope or not isinstance(here, ast.ClassDef)):
                return here
            here = self.scope_of.get(here)
        return None

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The statements and expressions around a node, up to its function."""
        scope = self.scope_of.get(node)
        while (node := self.parent.get(node, self.tree)) not in (scope, self.tree):
            yield node

    def class_of(self, function: ast.AST) -> ast.ClassDef | None:
        """The class whose method a function is."""
        scope = self.scope_of.get(function)
        return scope if isinstance(scope, ast.ClassDef) else None

    # -- values ----------------------------------------------------------------------------------------

    def values(self, node: ast.AST | None) -> Values:
        """Everything an expression may be."""
        if node is None:
            return NOTHING
        known = self._memory.get(node)
        if known is None:
            self._work += 1
            if self._work > MAX_WORK:
                raise TooComplex
            self._memory[node] = NOTHING  # ends a recursion
            known = self._memory[node] = self._values(node)
        return known

    def _values(self, node: ast.AST) -> Values:
        if isinstance(node, ast.Constant):
            return frozenset({Text(node.value)}) if isinstance(node.value, str | bytes) else NOTHING
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Attribute):
            return union(self.attribute(base, node.attr) for base in self.values(node.value))
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Call):
            made = (guard_calls.result(self, i, node) for i in self.invocations(node))
            return union([guard_calls.of_method(self, node), *made])
        if isinstance(node, ast.Lambda):
            return frozenset({Own(node)})
        if isinstance(node, ast.IfExp):
            return self.values(node.body) | self.values(node.orelse)
        if isinstance(node, ast.BoolOp):
            return union(self.values(v) for v in node.values)
        if isinstance(node, ast.NamedExpr | ast.Await | ast.Starred | ast.FormattedValue | ast.keyword):
            return self.values(node.value)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return frozenset({Items(tuple(self.values(e) for e in node.elts))})
        if isinstance(node, ast.Dict):
            keys = union(self.values(k) for k in node.keys if k is not None)
            return frozenset({Table(keys, union(self.values(v) for v in node.values))})
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            return frozenset({Items((self.values(node.elt),))})
        if isinstance(node, ast.DictComp):
            return frozenset({Table(self.values(node.key), self.values(node.value))})
        if isinstance(node, ast.BinOp):
            return combined(node.op, self.values(node.left), self.values(node.right))
        if isinstance(node, ast.JoinedStr):
            return joined([self.values(v) for v in node.values])
        return NOTHING

    def _name(self, node: ast.Name) -> Values:
        home = self.home(node.id, self.scope_of.get(node, self.tree))
        if home is not None:
            return self.variables.get((home, node.id), NOTHING)
        if self.outer and node.id in self.outer.names[self.outer.tree]:
            return self.outer.variables.get((self.outer.tree, node.id), NOTHING)
        if node.id == "__builtins__":
            return path("builtins")
        return path(f"builtins.{node.id}") if hasattr(builtins, node.id) else NOTHING

    def attribute(self, base: Value, name: str) -> Values:
        """`base.name`."""
        if isinstance(base, Path):
            return path(f"{base.name}.{name}")
        if isinstance(base, Instance) and name == "__class__":
            return frozenset({Own(base.of)})
        owner = base.of if isinstance(base, Instance) else base.node if isinstance(base, Own) else None
        if isinstance(owner, ast.ClassDef):
            return self.attributes.get(name, NOTHING) | self.variables.get((owner, name), NOTHING)
        return NOTHING

    def _subscript(self, node: ast.Subscript) -> Values:
        found: list[Values] = []
        keys = texts(self.values(node.slice))
        for base in self.values(node.value):
            if isinstance(base, Path) and base.name == "builtins.globals()":
                found.extend(self.variables.get((self.tree, key), NOTHING) for key in keys)
                found.extend(path("builtins") for key in keys if key == "__builtins__")
            elif isinstance(base, Path):
                found.extend([element(base, key) for key in keys] or [element(base, None)])
            elif isinstance(base, Text) and isinstance(node.slice, ast.Slice):
                found.append(sliced(base, node.slice))
            elif isinstance(base, Items) and isinstance(node.slice, ast.Constant):
                index = node.slice.value
                if isinstance(index, int) and -len(base.items) <= index < len(base.items):
                    found.append(base.items[index])
            elif isinstance(node.slice, ast.Slice) and not isinstance(base, Own | Instance):
                found.append(frozenset({base}))
            else:
                found.append(base.items if isinstance(base, Table) else elements(frozenset({base})))
        return union(found)

    # -- calls -----------------------------------------------------------------------------------------

    def invocations(self, call: ast.Call) -> list[Invocation]:
        """What a call may reach; partial applications are resolved, `map(f, xs)` counts as `f(x)` too."""
        arguments: list[Values] = []
        for argument in call.args:
            values = self.values(argument)
            if not isinstance(argument, ast.Starred):
                arguments.append(values)
                continue
            for value in values:
                arguments += value.items if isinstance(value, Items) else [elements(frozenset({value}))]
        keywords = {k.arg: self.values(k.value) for k in call.keywords if k.arg}
        return list(self._reached(self.values(call.func), arguments, keywords, 0))

    def _reached(
        self, functions: Values, arguments: list[Values], keywords: dict[str, Values], depth: int
    ) -> Iterator[Invocation]:
        if depth > 4:
            return
        for function in functions:
            if isinstance(function, Partial):
                more = [*function.arguments, *arguments]
                yield from self._reached(function.function, more, keywords, depth + 1)
                continue
            yield Invocation(function, arguments, keywords)
            if isinstance(function, Path) and function.name in _APPLY and arguments:
                rest = [elements(a) for a in arguments[1:]]
                if function.name == "itertools.starmap" and rest:
                    rest = [v for item in rest[0] if isinstance(item, Items) for v in item.items]
                yield from self._reached(arguments[0], rest, {}, depth + 1)

    # -- bindings --------------------------------------------------------------------------------------

    def _bind(self, node: ast.AST) -> None:
        scope = self.scope_of.get(node, self.tree)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, self._grows(target, node.value))
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            self._assign(node.target, self.values(node.value))
        elif isinstance(node, ast.AugAssign):
            grown = combined(node.op, self.values(node.target), spelled(self.values(node.value)))
            self._assign(node.target, grown)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self._assign(node.target, elements(self.values(node.iter)))
        elif isinstance(node, ast.withitem):
            if node.optional_vars is not None:
                self._assign(node.optional_vars, self.values(node.context_expr))
        elif isinstance(node, ast.Import):
            for item in node.names:
                whole = item.name if item.asname else item.name.partition(".")[0]
                self._add(item.asname or whole, scope, path(whole))
        elif isinstance(node, ast.ImportFrom):
            for item in node.names:
                module = f"{node.module}." if node.module else "" if node.level else "."
                self._add(item.asname or item.name, scope, path(f"{module}{item.name}"))
        elif isinstance(node, ast.ClassDef):
            self._add(node.name, scope, frozenset({Own(node)}))
        elif isinstance(node, FUNCTIONS):
            self._define(node, scope)
        elif isinstance(node, ast.Return | ast.Yield):
            self._give(
                scope, self.values(node.value) if isinstance(node, ast.Return) else self._row(node.value)
            )
        elif isinstance(node, ast.Call):
            self._pass(node)

    def _grows(self, target: ast.AST, value: ast.expr) -> Values:
        """What is assigned; `s = s + c` is `s += c`."""
        if (
            isinstance(value, ast.BinOp)
            and isinstance(value.op, ast.Add)
            and ast.unparse(value.left) == ast.unparse(target)
        ):
            return combined(value.op, self.values(value.left), spelled(self.values(value.right)))
        return self.values(value)

    def _row(self, node: ast.AST | None) -> Values:
        return frozenset({Items((self.values(node),))})

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: ast.AST) -> None:
        if isinstance(node, ast.Lambda):
            self._give(node, self.values(node.body))
        else:
            self._add(node.name, scope, frozenset({Own(node)}))
        given = [*node.args.posonlyargs, *node.args.args]
        for argument, default in zip(given[::-1], node.args.defaults[::-1], strict=False):
            self._add(argument.arg, node, self.values(default))
        for argument, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            self._add(argument.arg, node, self.values(value))
        if isinstance(scope, ast.ClassDef) and given:
            static = any("staticmethod" in ast.dump(d) for d in getattr(node, "decorator_list", []))
            if not static:
                self._add(given[0].arg, node, frozenset({Instance(scope)}))

    def _pass(self, call: ast.Call) -> None:
        """Arguments reach parameters; what is appended reaches its list."""
        for made in self.invocations(call):
            if not isinstance(made.function, Own):
                continue
            node: ast.AST | None = made.function.node
            skip = 1 if isinstance(call.func, ast.Attribute) and self.class_of(made.function.node) else 0
            if isinstance(node, ast.ClassDef):
                body = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
                node, skip = body.get("__init__"), 1
            if not isinstance(node, FUNCTIONS):
                continue
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)][skip:]
            for name, values in zip(names, made.arguments, strict=False):
                self._add(name, node, values)
            if node.args.vararg and len(made.arguments) > len(names):
                self._add(node.args.vararg.arg, node, frozenset({Items(tuple(made.arguments[len(names) :]))}))
            for name, values in made.keywords.items():
                self._add(name, node, values)
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr in _FILLS and call.args:
            values = self.values(call.args[-1])
            held = values if function.attr in ("extend", "update") else frozenset({Items((values,))})
            if values and isinstance(function.value, ast.Name | ast.Attribute):
                self._assign(function.value, held)

    def _assign(self, target: ast.AST, values: Values) -> None:
        if not values:
            return
        if isinstance(target, ast.Name):
            self._add(target.id, self.scope_of.get(target, self.tree), values)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, values)
        elif isinstance(target, ast.Tuple | ast.List):
            for value in values:
                for i, part in enumerate(target.elts):
                    fits = isinstance(value, Items) and len(value.items) == len(target.elts)
                    whole = (
                        value.items[i] if fits and isinstance(value, Items) else elements(frozenset({value}))
                    )
                    self._assign(part, whole)
        elif isinstance(target, ast.Attribute):
            if any(isinstance(owner, Own | Instance) for owner in self.values(target.value)):
                old = self.attributes.get(target.attr, NOTHING)
                self.attributes[target.attr] = self._grown(old, values)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name | ast.Attribute):
            self._assign(target.value, frozenset({Table(self.values(target.slice), values)}))

    def _add(self, name: str, scope: ast.AST, values: Values) -> None:
        key = (self.home(name, scope) or self.tree, name)
        self.variables[key] = self._grown(self.variables.get(key, NOTHING), values)

    def _give(self, function: ast.AST, values: Values) -> None:
        self.results[function] = self._grown(self.results.get(function, NOTHING), values)

    def _grown(self, old: Values, more: Values) -> Values:
        if more <= old or len(old) >= MAX_VALUES:
            return old
        self._changed = True
        return old | more
