"""Text that a candidate runs as code: it is judged like the file around it, as far as the file shows it.

Making code is honest, from templates, lines, or files that were written first. Hiding it is not: what a
decoder gives, or what comes from outside of the candidate.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from harness.worker.guard.flow import Flow, Invocation
from harness.worker.guard.rules import Finding
from harness.worker.guard.values import Decoded, Path, Template, Text, Values, paths, texts
from harness.worker.jail.places import TEMPORARY

_RUNNERS = {
    "builtins.exec",
    "builtins.eval",
    "types.FunctionType",
    "types.CodeType",
    "code.InteractiveInterpreter",
}
_COMPILERS = (".load_inline", ".load_cpp", ".RawKernel", ".RawModule")
_OPENERS = {"builtins.open", "io.open", "os.open", "pathlib.Path"}
_OUTSIDE = ("os.environ", "os.getenv", "sys.argv", "sys.orig_argv", "sys.stdin", "builtins.input")
_DEPTH = 3  # of text within text

Inspect = Callable[[Flow], list[Finding]]


def look_at_code(
    flow: Flow, name: str, made: Invocation, call: ast.Call, inspect: Inspect
) -> Iterator[Finding]:
    """What is wrong with the code that a call of `name` runs or compiles; `inspect` judges text."""
    last = name.rpartition(".")[2]
    if name in _RUNNERS:
        yield from _executed(flow, last, made.argument(0), call.lineno, inspect)
        for file in _foreign_files(flow, call):
            yield Finding("hidden-code", f"{last} of the text of {file}", call.lineno)
    elif name.endswith(_COMPILERS):
        sources = [v for values in (*made.arguments, *made.keywords.values()) for v in values]
        if any(isinstance(v, Decoded) for v in sources):
            yield Finding("hidden-code", f"{last} compiles a source that is decoded first", call.lineno)


def _executed(flow: Flow, runner: str, payload: Values, line: int, inspect: Inspect) -> Iterator[Finding]:
    for value in payload:
        if isinstance(value, Decoded):
            yield Finding("hidden-code", f"{runner} of what {value.how} decodes", line)
        elif isinstance(value, Text | Template) and isinstance(value.value, str):
            for finding in _nested(flow, value.value, inspect):
                yield Finding(finding.rule, finding.detail, line)
        elif isinstance(value, Path) and value.name.startswith(_OUTSIDE):
            yield Finding("hidden-code", f"{runner} of what {value.name} holds", line)
        elif isinstance(value, Path) and value.name.startswith("builtins.open()"):
            yield Finding("opaque-code", f"{runner} of a file's text", line)
        elif isinstance(value, Path) and not value.name.startswith(("builtins.", "torch.", "triton.")):
            yield Finding("opaque-code", f"{runner} of {value.name}", line)
    if not payload and runner == "exec":
        yield Finding("opaque-code", "exec of text that is made while it runs", line)


def _nested(flow: Flow, source: str, inspect: Inspect) -> list[Finding]:
    """What is found in text that is run."""
    if flow.depth >= _DEPTH:
        return []
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    return inspect(Flow(tree, outer=flow))


def _foreign_files(flow: Flow, call: ast.Call) -> Iterator[str]:
    """Files by absolute name whose text a call is given, and which the candidate cannot have written."""
    given, names = list(ast.walk(call)), set[str]()
    bound = [(target.id, value) for target, value in _bound(flow) if isinstance(target, ast.Name)]
    while more := {n.id for n in given if isinstance(n, ast.Name)} - names:
        names |= more
        given += [node for name, value in bound if name in more for node in ast.walk(value)]
    for node in given:
        if isinstance(node, ast.Call) and node.args and _OPENERS.intersection(paths(flow.values(node.func))):
            for file in texts(flow.values(node.args[0])):
                if file.startswith("/") and not file.startswith(f"{TEMPORARY}/"):
                    yield file


def _bound(flow: Flow) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    for node in flow.nodes:
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, ast.withitem):
            yield node.optional_vars, node.context_expr
