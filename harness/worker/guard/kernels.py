"""Which kernels a candidate defines, where it launches them, and whether each launch depends on something."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from harness.worker.guard.flow import FUNCTIONS, Flow
from harness.worker.guard.values import Instance, Own, Path, Template, Text, Values, paths, texts

_TRITON = (
    "triton.jit",
    "triton.autotune",
    "triton.heuristics",
    "triton.experimental.gluon.jit",
    "triton.runtime.",
)
_NATIVE = (
    *("harness.native.load_cpp", "torch.utils.cpp_extension.load_inline", "torch.utils.cpp_extension.load"),
    *("ctypes.CDLL", "ctypes.cdll.LoadLibrary", "harness.native."),
)
# The CuTe DSL, by the names under which its package offers its decorators.
_CUTE_DECORATORS = tuple(
    f"cutlass.{place}.{kind}"
    for place in ("cute", "cute.experimental", "cutlass_dsl.CuTeDSL", "cutlass_dsl.CuteExperimentalDSL")
    for kind in ("kernel", "jit")
)
_CUTE_COMPILED = ("cutlass.cute.compile", "cutlass.cute.experimental.compile")
# Kernels that reach a device in ways whose launches the harness neither counts nor stops.
_OPAQUE = (
    *(
        "torch.compile",
        "torch._inductor.",
        "torch._C._dynamo.",
        "cupy.",
        "numba.",
        "pycuda.",
        "cffi.",
        "pyopencl.",
    ),
    *(
        "jax.",
        "tvm.",
        "tvm_ffi.",
        "tilelang.",
        "taichi.",
        "mlx.",
        "torch.jit.script",
        "cppyy.",
        "warp.",
    ),
    # Other parts of CUTLASS and of CUDA Python: the CuTe DSL is followed, and takes its streams from there.
    *(
        "cutlass.op.",
        "cutlass.emit.",
        "cutlass.backend.",
        "cutlass.operators.",
        "cutlass.jax.",
        "cutlass_cppgen.",
    ),
    *("cuda.core.", "cuda.nvrtc", "cuda.bindings.nvrtc", "cuda.bindings.driver.?", "cuda.bindings.runtime.?"),
    *("cuda.bindings.driver.cuLaunch", "cuda.cuda.cuLaunch", "cuda.bindings.runtime.cudaLaunch"),
    *("cuda.bindings.driver.cuGraphLaunch", "cuda.bindings.driver.*", "cuda.cuda.*"),
    *(
        "helion.",
        "hip.",
        "torch.cuda.CUDAGraph",
        "torch.cuda.make_graphed_callables",
        "torch.cuda._compile_kernel",
    ),
)


@dataclass(frozen=True)
class Kernels:
    """`triton`, `cute` and `native` name what is defined; `opaque` names means whose launches cannot be
    followed.

    `conditional`: some launch can be reached from forward, but only under a condition that is no constant.
    `written`: a text in the file defines Triton kernels, for a module that the file writes.
    """

    triton: tuple[str, ...] = ()
    cute: tuple[str, ...] = ()
    native: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()
    conditional: bool = False
    written: bool = False

    @property
    def defined(self) -> tuple[str, ...]:
        return self.triton + self.cute + self.native


def find_kernels(flow: Flow) -> Kernels:
    """The kernels that a file defines, by language, and what of its launches cannot be followed."""
    triton: list[str] = []
    cute: list[str] = []
    native: list[str] = []
    opaque: set[str] = set()
    for node in flow.nodes:
        if isinstance(node, ast.FunctionDef):
            if _decorated(flow, node, _TRITON):
                triton.append(node.name)
            elif _decorated(flow, node, _CUTE_DECORATORS):
                cute.append(node.name)
        elif isinstance(node, ast.Call):
            for name in paths(flow.values(node.func)):
                if (
                    name.startswith(_TRITON + _CUTE_DECORATORS)
                    and "()" not in name
                    and not _decorates(flow, node)
                ):
                    kernels = triton if name.startswith(_TRITON) else cute
                    kernels.append(ast.unparse(node.args[0])[:40] if node.args else name)
                elif name.startswith(_NATIVE) and "()" not in name and _loads_own(flow, node, name):
                    native.append(name.rpartition(".")[2])
        if isinstance(node, ast.Name | ast.Attribute | ast.Import | ast.ImportFrom):
            opaque.update(_opaque(flow, node))
    conditional = bool(triton or cute or native) and _conditional(flow)
    defined = tuple(triton), tuple(cute), tuple(native)
    return Kernels(*defined, tuple(sorted(opaque)), conditional, _written(flow))


def _decorated(flow: Flow, function: ast.FunctionDef, names: tuple[str, ...]) -> bool:
    decorators = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    return any(name.startswith(names) for d in decorators for name in paths(flow.values(d)))


def _written(flow: Flow) -> bool:
    """Whether some text in the file is a module with Triton kernels, to be written to disk and imported."""
    for node in flow.nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.Call):
            if isinstance(flow.parent.get(node), ast.Expr | ast.JoinedStr):  # a docstring; a part
                continue
            sources = (v.value for v in flow.values(node) if isinstance(v, Text | Template))
            if any(isinstance(s, str) and "triton" in s and _defines_kernels(s) for s in sources):
                return True
    return False


def _defines_kernels(source: str) -> bool:
    try:
        tree = ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError, RecursionError):
        return False
    found = find_kernels(Flow(tree))
    return bool(found.triton) or found.written


def _decorates(flow: Flow, node: ast.Call) -> bool:
    holder = flow.parent.get(node)
    return isinstance(holder, ast.FunctionDef) and node in holder.decorator_list


def _loads_own(flow: Flow, node: ast.Call, name: str) -> bool:
    """A library that the file builds; loading libc or libcuda is no kernel of one's own."""
    if not name.startswith("ctypes."):
        return True
    if not node.args or (isinstance(node.args[0], ast.Constant) and node.args[0].value is None):
        return False
    given = flow.values(node.args[0])
    if texts(given):
        return any("/" in t and not t.startswith(("/usr/", "/lib", "/opt/")) for t in texts(given))
    return "ctypes.util.find_library()" not in paths(given)


def _opaque(flow: Flow, node: ast.AST) -> Iterator[str]:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [f"{item.name}." for item in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{item.name}" for item in node.names]
    else:
        names = paths(flow.values(node))
    for name in names:
        for means in _OPAQUE:
            if name.startswith(means):
                yield means.rstrip(".")


def call_path(flow: Flow) -> dict[ast.AST, list[ast.AST]]:
    """The functions of this file that a call of ModelNew may run, each with the calls that lead to it."""
    start = [
        method
        for node in flow.nodes
        if isinstance(node, ast.ClassDef) and node.name == "ModelNew"
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name in ("forward", "__call__")
    ]
    reached: dict[ast.AST, list[ast.AST]] = {method: [] for method in start}
    frontier: list[ast.AST] = list(start)
    while frontier:
        for node in body_of(frontier.pop()):
            # A function that is handed on, or launched as kernel[grid], may be called just as well.
            values = flow.values(node) if isinstance(node, ast.Name | ast.Attribute) else ()
            for value in values:
                target: ast.AST | None = value.node if isinstance(value, Own) else None
                if isinstance(target, ast.ClassDef):
                    methods = [n for n in target.body if isinstance(n, ast.FunctionDef)]
                    called = [m for m in methods if m.name in ("forward", "__call__", "__init__", "apply")]
                else:
                    called = [target] if isinstance(target, FUNCTIONS) else []  # type: ignore[list-item]
                for function in called:
                    if function not in reached:
                        reached[function] = []
                        frontier.append(function)
                    reached[function].append(node)
    return reached


def body_of(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    todo: list[ast.AST] = list(function.body) if isinstance(function, FUNCTIONS[:2]) else [function.body]  # type: ignore[attr-defined]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            todo.extend(ast.iter_child_nodes(node))
        elif isinstance(node, ast.Lambda):
            todo.append(node.body)


def _conditional(flow: Flow) -> bool:
    """Whether a launch that forward can reach stands under a condition that may be true for other inputs."""
    reached = call_path(flow)
    launches = (
        (function, node)
        for function in reached
        for node in body_of(function)
        if isinstance(node, ast.Call) and _is_launch(flow, node)
    )
    return any(_may_differ(flow, t) for f, n in launches for t in _tests(flow, f, n, reached, 0))


def _is_launch(flow: Flow, call: ast.Call) -> bool:
    target = call.func
    if isinstance(target, ast.Subscript):
        values = flow.values(target.value)
        return any(isinstance(v, Own) and isinstance(v.node, ast.FunctionDef) for v in values) or any(
            isinstance(v, Path) and v.name.startswith(_TRITON) for v in values
        )
    values = flow.values(target)
    made = (name for name in paths(values) if "()" in name)
    return any(name.startswith(_NATIVE + _CUTE_COMPILED) for name in made) or any(
        _decorated(flow, function, _CUTE_DECORATORS) for function in _called(values)
    )


def _called(values: Values) -> Iterator[ast.FunctionDef]:
    """The functions of this file that calling one of these values runs."""
    for value in values:
        if isinstance(value, Own) and isinstance(value.node, ast.FunctionDef):
            yield value.node
        elif isinstance(value, Instance):
            yield from (n for n in value.of.body if isinstance(n, ast.FunctionDef) and n.name == "__call__")


def _tests(
    flow: Flow, function: ast.AST, node: ast.AST, reached: dict[ast.AST, list[ast.AST]], depth: int
) -> Iterator[ast.expr]:
    """The conditions that decide whether a node runs: around it, before it, around its callers."""
    for other in flow.around(node):
        if isinstance(other, ast.If | ast.IfExp):
            yield other.test
    for other in body_of(function):  # those that leave before
        if isinstance(other, ast.If) and other.lineno < getattr(node, "lineno", 0) and leaves(other.body):
            yield other.test
    if depth < 4:
        for caller in reached.get(function, []):
            scope = flow.scope_of.get(caller)
            if scope in reached and scope is not function and scope is not None:
                yield from _tests(flow, scope, caller, reached, depth + 1)


def leaves(statements: list[ast.stmt]) -> bool:
    """Whether a block ends by leaving what is around it."""
    return bool(statements) and isinstance(statements[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def _may_differ(flow: Flow, test: ast.expr) -> bool:
    """False for what the file itself fixes: literals, and names that only ever hold one."""
    if isinstance(test, ast.Constant):
        return False
    if isinstance(test, ast.UnaryOp):
        return _may_differ(flow, test.operand)
    if isinstance(test, ast.BoolOp):
        return any(_may_differ(flow, v) for v in test.values)
    if isinstance(test, ast.Name | ast.Attribute):
        name = test.id if isinstance(test, ast.Name) else test.attr
        given = [
            node.value
            for node in flow.nodes
            if isinstance(node, ast.Assign)
            for target in node.targets
            if (target.id if isinstance(target, ast.Name) else getattr(target, "attr", None)) == name
        ]
        fixed = {bool(value.value) for value in given if isinstance(value, ast.Constant)}
        return len(fixed) != 1 or not all(isinstance(value, ast.Constant) for value in given)
    return True
