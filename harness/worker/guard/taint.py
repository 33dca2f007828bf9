"""Which values of a file tell of whoever calls it: environment, command line, callers."""

from __future__ import annotations

import ast

from harness.worker.guard.flow import FUNCTIONS, Flow
from harness.worker.guard.values import Own, paths

SEARCHED, NAMED = 2, 1
_SEARCHED = (
    *(
        "sys.argv",
        "sys.orig_argv",
        "os.environ.items",
        "os.environ.values",
        "os.environ.keys",
        "os.environ.copy",
    ),
    *(
        "os.environb",
        "os.environ[]",
        "psutil.",
        "multiprocessing.current_process",
        "multiprocessing.parent_process",
    ),
    *(
        "sys._getframe",
        "inspect.stack",
        "inspect.currentframe",
        "traceback.extract_stack",
        "traceback.walk_stack",
        "traceback.format_stack",
        "os.getppid",
        "threading.enumerate",
    ),
)
_NAMED = (
    "os.environ",
    "os.getenv",
    "os.getenvb",
    "platform.node",
    "socket.gethostname",
    "os.getcwd",
    "sys.gettrace",
)
_MADE_OF = (
    "builtins.",
    "re.",
    "fnmatch.",
    "hashlib.",
    "operator.",
    "itertools.",
    "functools.",
    "collections.",
    "str.",
)


class Taint:
    """Levels by expression: 0, NAMED (one variable was asked for) or SEARCHED (all of them were)."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.names: dict[tuple[ast.AST | None, str], int] = {}
        self.attributes: dict[str, int] = {}
        self.functions: dict[ast.AST, int] = {}
        for _ in range(6):
            before = (sum(self.names.values()), sum(self.attributes.values()), sum(self.functions.values()))
            for node in flow.nodes:
                self._spread(node)
            if before == (
                sum(self.names.values()),
                sum(self.attributes.values()),
                sum(self.functions.values()),
            ):
                break

    # -- taint -----------------------------------------------------------------------------------------

    def of(self, node: ast.AST | None) -> int:
        """The level of an expression."""
        if node is None or isinstance(node, ast.Constant):
            return 0
        level = 0
        if isinstance(node, ast.Name):
            home = self.flow.home(node.id, self.flow.scope_of.get(node, self.flow.tree))
            level = self.names.get((home, node.id), 0)
        elif isinstance(node, ast.Attribute):
            level = max(self.attributes.get(node.attr, 0), self.of(node.value))
        elif isinstance(node, ast.Call):
            return max(self._call(node), self.source(node))
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            return 0
        else:
            level = max((self.of(child) for child in ast.iter_child_nodes(node)), default=0)
        return max(level, self.source(node))

    def source(self, node: ast.AST) -> int:
        if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
            return 0
        level = 0
        for name in paths(self.flow.values(node)):
            if name.startswith(_SEARCHED) and not self._by_name(node):
                level = SEARCHED
            elif name.startswith(_NAMED) and name != "os.environ":
                level = max(level, NAMED)
        return level

    @staticmethod
    def _by_name(node: ast.AST) -> bool:
        """`os.environ["NAME"]` asks for one variable; `os.environ[name]` of a loop does not."""
        return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)

    def _call(self, node: ast.Call) -> int:
        given = max((self.of(a) for a in (*node.args, *(k.value for k in node.keywords))), default=0)
        whole = any("os.environ" in paths(self.flow.values(a)) for a in node.args)
        level = 0
        for made in self.flow.invocations(node):
            if isinstance(made.function, Own):
                level = max(level, self.functions.get(made.function.node, 0))
            elif paths(frozenset({made.function})) and paths(frozenset({made.function}))[0].startswith(
                _MADE_OF
            ):
                level = max(level, given, SEARCHED if whole else 0)
        if isinstance(
            node.func, ast.Attribute
        ):  # a method of something tainted, or a text's with something tainted
            level = max(level, self.of(node.func.value))
            if isinstance(node.func.value, ast.Constant):
                level = max(level, given)
        return level

    def _spread(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            level = max(self.of(node.value), self._under(node))
            for target in targets:
                self._mark(target, level)
        elif isinstance(node, ast.For | ast.comprehension):
            level = self.of(node.iter)
            if "os.environ" in paths(self.flow.values(node.iter)):
                level = SEARCHED
            self._mark(node.target, level)
        elif isinstance(node, ast.Return):
            scope = self.flow.scope_of.get(node)
            level = max(self.of(node.value), self._under(node) if is_plain(node.value) else 0)
            if scope is not None and level > self.functions.get(scope, 0):
                self.functions[scope] = level
        elif isinstance(node, ast.Lambda):
            self.functions[node] = max(self.functions.get(node, 0), self.of(node.body))

    def _under(self, node: ast.AST) -> int:
        """The level of the conditions around a plain value: `flag = True` under one says as much."""
        if isinstance(node, ast.Assign) and not is_plain(node.value):
            return 0
        level = 0
        for other in self.flow.around(node):
            if isinstance(other, ast.If | ast.While):
                level = max(level, self.of(other.test))
            elif isinstance(other, ast.For):
                level = max(level, self.of(other.iter))
        return level

    def _mark(self, target: ast.AST, level: int) -> None:
        if not level:
            return
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                home = self.flow.home(node.id, self.flow.scope_of.get(node, self.flow.tree))
                self.names[home, node.id] = max(level, self.names.get((home, node.id), 0))
            elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                self.attributes[node.attr] = max(level, self.attributes.get(node.attr, 0))


def is_plain(node: ast.AST | None) -> bool:
    """Literals, and what is made of comparisons."""
    return (
        node is None
        or isinstance(node, ast.Constant | ast.Compare)
        or (isinstance(node, ast.UnaryOp) and is_plain(node.operand))
    )
