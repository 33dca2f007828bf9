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
from harness.worker.guard.flow import Flow
from harness.worker.guard.kernels import body_of, call_path, leaves
from harness.worker.guard.rules import Finding
from harness.worker.guard.taint import SEARCHED, Taint, is_plain
from harness.worker.guard.values import paths
from harness.worker.guard.work import Work, called_name, meet

_FACTS = {"dtype", "device", "shape", "ndim", "layout", "is_cuda", "requires_grad", "__name__"}
_NUMBERS = {"int", "float", "bool", "str", "len", "min", "max", "round"}  # what these functions give,
_COUNTS = {"numel", "size", "stride", "dim", "item"}  # and these methods


def find_phase_sniffing(flow: Flow) -> list[Finding]:
    return list(_Phase(flow).findings())


class _Phase:
    """What signs of the caller decide in a file."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.taint = Taint(flow)
        self.reached = call_path(flow)
        self.work = Work(flow)
        self.bindings = list(_bindings(flow))

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
            names = set[str]().union(*(self.work.places(r.value) for r in returns))
            feeds = any(node in ast.walk(r) for r in returns) or any(
                isinstance(n, ast.Assign)
                and node in ast.walk(n.value)
                and any(meet(names, self.work.places(target)) for target in n.targets)
                for n in body_of(function)
            )
            works = [self.work.works(arm) for arm in arms]
            idle = any(self._tensor_like(arm) for arm, work in zip(arms, works, strict=True) if not work)
            return feeds and any(works) and idle
        first = set(_inside(node.body))
        rest = set(_inside(node.orelse)) or (_after(function, node) if leaves(node.body) else set())
        if not any(self._computes(function, r, set()) for r in returns):
            return False
        for r in returns:
            excluded = rest if r in first else first if r in rest else None
            without = [excluded] if excluded is not None else [first, set(_inside(node.orelse))]
            for nodes in without:
                if nodes and not self._computes(function, r, nodes) and not is_plain(r.value):
                    return True
        return False

    def _arms(self, node: ast.expr) -> list[ast.expr]:
        """What a conditional expression, or `sign and this or that`, may be."""
        if isinstance(node, ast.IfExp):
            return [*self._arms(node.body), *self._arms(node.orelse)]
        if isinstance(node, ast.BoolOp):
            return [arm for value in node.values for arm in self._arms(value) if not self.taint.of(arm)]
        return [node]

    def _tensor_like(self, arm: ast.expr) -> bool:
        """Whether it may be a result: an allocation, a copy, a view, or what does not only hold numbers."""
        return _tensor_like(arm) and not self._is_scalar(arm, 0)

    def _is_scalar(self, node: ast.expr, depth: int) -> bool:
        """A number, a text, or what is made of them."""
        if isinstance(node, ast.Name | ast.Attribute):
            given = [value for bound, value in self.bindings if bound == _bound(node)]
            return bool(given) and depth < 4 and all(v and self._is_scalar(v, depth + 1) for v in given)
        if isinstance(node, ast.Constant):
            return node.value is not None
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.IfExp):
            parts = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
            return all(self._is_scalar(part, depth) for part in parts)
        if isinstance(node, ast.Call):
            environment = self.taint.source(node) and all(isinstance(a, ast.Constant) for a in node.args)
            names = _NUMBERS if isinstance(node.func, ast.Name) else _COUNTS
            return bool(environment) or called_name(node) in names
        return is_plain(node) or (isinstance(node, ast.Subscript) and not _tensor_like(node.value))

    def _computes(self, function: ast.AST, result: ast.Return, without: set[ast.AST]) -> bool:
        assert result.value is not None
        return self.work.computes(function, result.value, without)


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
    if isinstance(node, ast.Attribute):
        return node.attr not in _FACTS
    if isinstance(node, ast.Name | ast.Subscript):
        return not isinstance(node, ast.Subscript) or _tensor_like(node.value)
    if isinstance(node, ast.Call):
        name = called_name(node)
        return name == "clone" or operator_kind(f"aten::{name}") == "memory"
    return False


def _bindings(flow: Flow) -> Iterator[tuple[str, ast.expr | None]]:
    """What names and attributes are set to anywhere in a file; None for what is not known."""
    for node in flow.nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name | ast.Attribute) and not isinstance(part.ctx, ast.Load):
                        yield _bound(part), node.value
        elif isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args]
            unknown = [None] * (len(arguments) - len(node.args.defaults))
            for argument, default in zip(arguments, [*unknown, *node.args.defaults], strict=True):
                yield argument.arg, default
            for argument, given in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                yield argument.arg, given


def _bound(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else f".{node.attr}"


def _inside(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for statement in statements:
        yield from ast.walk(statement)


def _after(function: ast.AST, node: ast.stmt) -> set[ast.AST]:
    """What follows a statement in its function."""
    end = node.end_lineno or node.lineno
    return {n for n in body_of(function) if getattr(n, "lineno", 0) > end}
