"""Phase sniffing: what forward returns depends on who seems to be calling.

Reading the environment is honest: for a number of threads, a block size, a debug print, the choice between
two implementations. So a finding needs more than a read. Either forward's calls search the whole environment,
the command line or the callers for signs, and the outcome decides what is computed; or, wherever a named
variable was read, one of its outcomes leaves the result without any work on it (unwritten, kept from before,
or the argument itself) where another outcome computes it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from harness.worker.evidence.kernel_names import operator_kind
from harness.worker.guard.flow import FUNCTIONS, Flow
from harness.worker.guard.kernels import body_of, call_path, leaves
from harness.worker.guard.rules import Finding
from harness.worker.guard.taint import SEARCHED, Taint, is_plain
from harness.worker.guard.values import Own, paths

# Calls that compute nothing of a result: questions, texts, bookkeeping, messages.
_IDLE = """
print len int float bool str min max isinstance range getattr hasattr setattr id tuple list dict set type
super any all sorted enumerate
format join lower upper strip split startswith endswith get items keys values append
debug info warning log data_ptr clone is_cuda element_size nelement stride
"""
_IDLE_CALLS = frozenset(_IDLE.split())


def find_phase_sniffing(flow: Flow) -> list[Finding]:
    return list(_Phase(flow).findings())


class _Phase:
    """What signs of the caller decide in a file."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.taint = Taint(flow)
        self.reached = call_path(flow)

    def findings(self) -> Iterator[Finding]:
        searched = any(self._searches(node) for function in self.reached for node in body_of(function))
        for function in self.reached:
            for node in body_of(function):
                if not isinstance(node, ast.If | ast.IfExp | ast.BoolOp):
                    continue
                level = self.taint.of(node.values[0] if isinstance(node, ast.BoolOp) else node.test)
                if level == SEARCHED and searched and _decides(node):
                    detail = "searches for signs of its caller to decide what is computed"
                elif level and self._skips(function, node):
                    detail = "asks the environment whether to compute its result"
                else:
                    continue
                yield Finding("phase-sniffing", detail, node.lineno)
                break

    def _searches(self, node: ast.AST) -> bool:
        if self.taint.source(node) == SEARCHED:
            return True
        return isinstance(node, ast.For | ast.comprehension) and "os.environ" in paths(
            self.flow.values(node.iter)
        )

    def _skips(self, function: ast.AST, node: ast.If | ast.IfExp | ast.BoolOp) -> bool:
        """Whether one outcome leaves the result without work."""
        returns = [n for n in body_of(function) if isinstance(n, ast.Return) and n.value is not None]
        if isinstance(function, ast.Lambda):
            returns = [ast.Return(value=function.body)]
        if isinstance(node, ast.IfExp | ast.BoolOp):
            arms = self._arms(node)
            values = [r.value for r in returns if r.value is not None]
            names = {n.id for v in values for n in ast.walk(v) if isinstance(n, ast.Name)}
            feeds = any(node in ast.walk(r) for r in returns) or any(
                isinstance(n, ast.Assign) and node in ast.walk(n.value) and names & _targets(n)
                for n in body_of(function)
            )
            works = [self._works(arm) for arm in arms]
            idle = any(_tensor_like(arm) for arm, work in zip(arms, works, strict=True) if not work)
            return feeds and any(works) and idle
        first = set(_inside(node.body))
        rest = set(_inside(node.orelse)) or (_after(function, node) if leaves(node.body) else set())
        if not any(self._worked(function, r, set()) for r in returns):
            return False
        for r in returns:
            excluded = rest if r in first else first if r in rest else None
            without = [excluded] if excluded is not None else [first, set(_inside(node.orelse))]
            for nodes in without:
                if nodes and not self._worked(function, r, nodes) and not is_plain(r.value):
                    return True
        return False

    def _arms(self, node: ast.expr) -> list[ast.expr]:
        """What a conditional expression, or `sign and this or that`, may be."""
        if isinstance(node, ast.IfExp):
            return [*self._arms(node.body), *self._arms(node.orelse)]
        if isinstance(node, ast.BoolOp):
            return [arm for value in node.values for arm in self._arms(value) if not self.taint.of(arm)]
        return [node]

    def _worked(self, function: ast.AST, result: ast.Return, without: set[ast.AST]) -> bool:
        """Whether anything outside `without` computes what is returned."""
        assert result.value is not None
        if self._works(result.value):
            return True
        names = {n.id for n in ast.walk(result.value) if isinstance(n, ast.Name)}
        for node in body_of(function):
            if node in without:
                continue
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and _targets(node) & names:
                if isinstance(node, ast.AugAssign) or (node.value is not None and self._works(node.value)):
                    return True
            elif isinstance(node, ast.Call) and self._works_itself(node):
                given = {
                    n.id for a in (*node.args, *node.keywords) for n in ast.walk(a) if isinstance(n, ast.Name)
                }
                if isinstance(node.func, ast.Attribute):
                    given |= {n.id for n in ast.walk(node.func.value) if isinstance(n, ast.Name)}
                if given & names - {"self"}:
                    return True
        return False

    def _works(self, node: ast.AST) -> bool:
        return any(self._works_itself(n) for n in ast.walk(node))

    def _works_itself(self, node: ast.AST) -> bool:
        if isinstance(node, ast.BinOp):
            operands = (node.left, node.right)
            arithmetic = any(isinstance(o, ast.Name | ast.Call | ast.BinOp) for o in operands)
            return isinstance(node.op, ast.MatMult) or arithmetic
        if not isinstance(node, ast.Call):
            return False
        called = [m.function.node for m in self.flow.invocations(node) if isinstance(m.function, Own)]
        if called and all(isinstance(c, FUNCTIONS) for c in called):
            return any(self._works_itself(n) for c in called for n in body_of(c) if not _calls(n, c))
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name not in _IDLE_CALLS and operator_kind(f"aten::{name}") != "memory"


def _calls(node: ast.AST, function: ast.AST) -> bool:
    """A recursive call, by name."""
    return isinstance(node, ast.Call) and getattr(node.func, "id", None) == getattr(function, "name", "")


def _decides(node: ast.If | ast.IfExp | ast.BoolOp) -> bool:
    """Whether the arms return or assign something that is no literal."""
    if not isinstance(node, ast.If):
        return any(_tensor_like(n) for n in ast.iter_child_nodes(node))
    for inner in _inside([*node.body, *node.orelse]):
        if isinstance(inner, ast.Return | ast.Assign | ast.AugAssign) and not is_plain(inner.value):
            return True
    return False


def _tensor_like(node: ast.AST) -> bool:
    """A name, an attribute or a call that allocates, copies or views."""
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        return True
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name == "clone" or operator_kind(f"aten::{name}") == "memory"
    return False


def _targets(node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def _inside(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for statement in statements:
        yield from ast.walk(statement)


def _after(function: ast.AST, node: ast.stmt) -> set[ast.AST]:
    """What follows a statement in its function."""
    end = node.end_lineno or node.lineno
    return {n for n in body_of(function) if getattr(n, "lineno", 0) > end}
