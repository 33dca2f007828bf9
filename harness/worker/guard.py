"""Static rules on a candidate's syntax tree: only what is cheating on its face.

Everything subtle is left to the separation of processes. Words are never judged, only what a statement does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

# Modules whose attributes a kernel has no reason to replace, and settings below them that it may change.
_PATCHED_ROOTS = {"torch", "time", "timeit", "json", "builtins", "sys", "os", "gc", "inspect", "numpy"}
_SETTINGS = ("torch.backends", "torch._dynamo.config", "torch._inductor.config", "torch.ops", "torch.classes")
_SNOOPING = {
    "gc.get_objects": "walks all objects of the process",
    "gc.get_referrers": "walks all objects of the process",
    "sys._getframe": "reads its callers' variables",
    "inspect.currentframe": "reads its callers' variables",
    "inspect.stack": "reads its callers' variables",
}
_REFERENCE_NAMES = {"Model", "get_inputs", "get_init_inputs"}


@dataclass(frozen=True)
class Finding:
    rule: str
    detail: str
    line: int


def inspect_candidate(tree: ast.Module) -> list[Finding]:
    """Findings that reject a candidate, in source order."""
    aliases = _aliases(tree)
    found: list[Finding] = []
    for node in ast.walk(tree):
        found.extend(_patches(node, aliases))
        found.extend(_snoops(node, aliases))
        found.extend(_reaches_reference(node))
    return sorted(found, key=lambda f: f.line)


def uses_triton_kernels(tree: ast.Module) -> bool:
    """Whether the file defines kernels for Triton (importing it for its helpers alone does not count)."""
    aliases = _aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                target = decorator.func if isinstance(decorator, ast.Call) else decorator
                if _dotted(target, aliases).startswith("triton."):
                    return True
        elif isinstance(node, ast.Call) and _dotted(node.func, aliases) in ("triton.jit", "triton.autotune"):
            return True
    return False


def _aliases(tree: ast.Module) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                names[item.asname or item.name.partition(".")[0]] = (
                    item.name if item.asname else item.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for item in node.names:
                names[item.asname or item.name] = f"{node.module}.{item.name}"
    return names


def _dotted(node: ast.AST, aliases: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return ""
    return ".".join([aliases[node.id], *reversed(parts)])


def _patches(node: ast.AST, aliases: dict[str, str]) -> Iterator[Finding]:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.Delete):
        targets = node.targets
    for target in targets:
        if isinstance(target, ast.Subscript) and _dotted(target.value, aliases) == "sys.modules":
            yield Finding("replaces-module", "replaces an entry of sys.modules", target.lineno)
        if isinstance(target, ast.Attribute):
            yield from _patch(_dotted(target, aliases), target.lineno)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("setattr", "delattr")
    ):
        owner = _dotted(node.args[0], aliases) if node.args else ""
        if owner:
            yield from _patch(f"{owner}.?", node.lineno)


def _patch(name: str, line: int) -> Iterator[Finding]:
    if name.partition(".")[0] in _PATCHED_ROOTS and not name.startswith(_SETTINGS):
        what = f"attributes of {name[:-2]}" if name.endswith(".?") else name
        yield Finding("patches-library", f"replaces {what}", line)


def _snoops(node: ast.AST, aliases: dict[str, str]) -> Iterator[Finding]:
    if isinstance(node, ast.Call):
        name = _dotted(node.func, aliases)
        if name in _SNOOPING:
            yield Finding("inspects-harness", f"{name} {_SNOOPING[name]}", node.lineno)


def _reaches_reference(node: ast.AST) -> Iterator[Finding]:
    if isinstance(node, ast.ImportFrom):
        taken = _REFERENCE_NAMES & {item.name for item in node.names}
        root = (node.module or "").partition(".")[0]
        if taken and (node.level or root in ("__main__", "problem", "reference", "kernelevolve_problem")):
            yield Finding(
                "uses-reference", f"imports {', '.join(sorted(taken))} of the reference", node.lineno
            )
