"""What in a function computes its result: which calls and assignments work, and where their results go.

Places are written as they are in the file, `y` or `self.out`; a view is the place that it looks at, and what
is copied comes from where it was computed. Work of own functions counts where they are called.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from harness.worker.evidence.kernel_names import ALLOCATIONS, VIEWS, operator_kind
from harness.worker.guard.flow import FUNCTIONS, Flow
from harness.worker.guard.kernels import body_of
from harness.worker.guard.values import Own, paths

MAX_DEPTH = 4  # calls of own functions within each other

# Calls that compute nothing of a result: questions, texts, bookkeeping, messages.
_IDLE = """
print len int float bool str min max isinstance range getattr hasattr setattr id tuple list dict set type
super any all sorted enumerate
format join lower upper strip split startswith endswith get items keys values append
debug info warning log data_ptr clone is_cuda element_size nelement stride
"""
_IDLE_CALLS = frozenset(_IDLE.split())
# Methods that put their arguments into what they are called on.
_PUTS = frozenset(["copy_", "set_", "append", "extend", "insert", "add", "update", "setdefault"])
_OF_SELF = "self.*"  # the object itself is handed on: whatever it holds


class Work:
    """Answers for the functions of one file; what it has found out about one is kept."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._works: dict[ast.AST, bool] = {}

    # -- what works ------------------------------------------------------------------------------------

    def works(self, node: ast.AST) -> bool:
        """Whether something in an expression computes."""
        return any(self._works_itself(n) for n in ast.walk(node))

    def _works_itself(self, node: ast.AST) -> bool:
        if isinstance(node, ast.BinOp):
            operands = (node.left, node.right)
            arithmetic = any(isinstance(o, ast.Name | ast.Call | ast.BinOp) for o in operands)
            return isinstance(node.op, ast.MatMult) or arithmetic
        if not isinstance(node, ast.Call):
            return False
        called = self._called(node)
        if called:
            return any(self._function_works(c) for c in called)
        name = called_name(node)
        return name not in _IDLE_CALLS and operator_kind(f"aten::{name}") != "memory"

    def _function_works(self, function: ast.AST) -> bool:
        if function not in self._works:
            self._works[function] = False  # ends a recursion
            self._works[function] = any(self._works_itself(n) for n in body_of(function))
        return self._works[function]

    def _called(self, call: ast.Call) -> list[ast.AST]:
        """The functions of this file that a call runs; none if it may be a class or something else of it."""
        found = [m.function.node for m in self.flow.invocations(call) if isinstance(m.function, Own)]
        return list(found) if all(isinstance(f, FUNCTIONS) for f in found) else []

    # -- where results go ------------------------------------------------------------------------------

    def computes(self, function: ast.AST, result: ast.expr, without: set[ast.AST]) -> bool:
        """Whether anything in a function, but for the nodes `without`, computes what it returns."""
        return self.works(result) or self._fills(function, self.places(result), without, 0)

    def _fills(self, function: ast.AST, wanted: set[str], without: set[ast.AST], depth: int) -> bool:
        body = [node for node in body_of(function) if node not in without]
        wanted, before = set(wanted), -1
        while len(wanted) > before:
            before = len(wanted)
            for target, value in (pair for node in body for pair in self._moves(node)):
                if meet(target, wanted):
                    if value is None or self.works(value):
                        return True
                    wanted |= set() if called_name(value) in ALLOCATIONS else self.places(value)
                elif self._is_view(value) and meet(self.places(value), wanted):
                    wanted |= target
        return any(self._call_fills(node, wanted, depth) for node in body if isinstance(node, ast.Call))

    def _moves(self, node: ast.AST) -> Iterator[tuple[set[str], ast.expr | None]]:
        """Places that a statement or call fills, and with what (None: what was there, changed)."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield self.places(target), node.value
        elif isinstance(node, ast.AugAssign):
            yield self.places(node.target), None
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield self.places(node.target), node.value
        elif isinstance(node, ast.For):
            yield self.places(node.target), node.iter
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PUTS:
            for argument in node.args:
                yield self.places(node.func.value), argument

    def _call_fills(self, call: ast.Call, wanted: set[str], depth: int) -> bool:
        """Whether a call computes into one of the places: it is given it, or an own function knows it."""
        kept = {place for place in wanted if place.startswith(("self.", "::"))}
        if kept and "torch.cuda.CUDAGraph().replay" in paths(self.flow.values(call.func)):
            return True  # a recorded graph works on what it was recorded with
        if self._works_itself(call) and meet(self._given(call), wanted):
            return True
        inner = self._called(call) if kept and depth < MAX_DEPTH else []
        return any(self._fills(function, kept, set(), depth + 1) for function in inner)

    def _given(self, call: ast.Call) -> set[str]:
        found = self.places(call)
        arguments = [*call.args, *(k.value for k in call.keywords)]
        if any(isinstance(a, ast.Name) and self._dotted(a) == "self" for a in arguments):
            found.add(_OF_SELF)
        return found

    def _is_view(self, value: ast.expr | None) -> bool:
        if isinstance(value, ast.Call):
            return called_name(value) in VIEWS or bool(self._returned(value))
        return isinstance(value, ast.Name | ast.Attribute | ast.Subscript)

    # -- places ----------------------------------------------------------------------------------------

    def places(self, node: ast.AST | None) -> set[str]:
        """All places that an expression names, and those that own functions in it return."""
        if node is None or isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            return set()
        dotted = self._dotted(node)
        if dotted is not None:
            return {dotted} if dotted not in ("", "self") else set()
        if not isinstance(node, ast.Call):
            return set[str]().union(*(self.places(child) for child in ast.iter_child_nodes(node)))
        owner = (
            [node.func.value] if isinstance(node.func, ast.Attribute) else []
        )  # what is called is no place
        inner = [*owner, *node.args, *(k.value for k in node.keywords)]
        return self._returned(node).union(*(self.places(n) for n in inner))

    def _dotted(self, node: ast.AST) -> str | None:
        """`self.out` for `self.out[i]`; empty for what is a library's, None for what is no place."""
        if isinstance(node, ast.Subscript | ast.Starred):
            return self._dotted(node.value)
        if isinstance(node, ast.Attribute):
            owner = self._dotted(node.value)
            return f"{owner}.{node.attr}" if owner else owner
        if not isinstance(node, ast.Name):
            return None
        home = self.flow.home(node.id, self.flow.scope_of.get(node, self.flow.tree))
        if any("(" not in name and "[" not in name for name in paths(self.flow.values(node))):
            return ""
        if home is self.flow.tree:
            return f"::{node.id}"
        if isinstance(home, FUNCTIONS) and self.flow.class_of(home) and home.args.args:
            return "self" if home.args.args[0].arg == node.id else node.id
        return node.id

    def _returned(self, call: ast.Call) -> set[str]:
        """What own functions hand out of their object, or of the module."""
        returns = (n for f in self._called(call) for n in body_of(f) if isinstance(n, ast.Return))
        dotted = {self._dotted(n.value) for n in returns if n.value is not None}
        return {d for d in dotted if d and d.startswith(("self.", "::"))}


def meet(first: set[str], second: set[str]) -> bool:
    """Whether a place of the one is, is part of, or holds one of the other."""
    if _OF_SELF in first and any(place.startswith("self.") for place in second):
        return True
    return any(f"{a}.".startswith(f"{b}.") or f"{b}.".startswith(f"{a}.") for a in first for b in second)


def called_name(node: ast.AST | None) -> str:
    """The last part of a called name."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
