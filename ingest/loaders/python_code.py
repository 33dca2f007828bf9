"""Python sources: one section per function, class head and method, with the signature as heading."""

from __future__ import annotations

import ast

from ingest.document import FileContent, LoadedDocument, LoadedSection, Loader
from ingest.loaders.markdown import SEPARATOR

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# Decorators and calls that make a function a kernel in the languages that are embedded in Python.
_KERNEL_DECORATORS = {"jit", "kernel", "autotune", "heuristics"}
_KERNEL_CALLS = {"pallas_call", "load_inline", "load_cpp"}


class PythonLoader(Loader):
    """Python sources that parse; others are reported with their syntax error."""

    name = "python"
    version = 1
    priority = 40

    def accepts(self, file: FileContent) -> bool:
        return file.suffix in (".py", ".pyi")

    def load(self, file: FileContent) -> LoadedDocument:
        lines = file.text.split("\n")
        module = file.path.stem
        try:
            tree = ast.parse(file.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last for deep nesting
            reason = str(error) or "nested too deeply"
            note = f"not valid Python ({reason}); cut by lines instead of by definitions"
            whole = LoadedSection(module, 1, max(1, len(lines)))
            return LoadedDocument(title=module, sections=[whole], notes=[*file.notes, note])
        doc = ast.get_docstring(tree) or ""
        return LoadedDocument(
            title=module,
            sections=_sections(tree, len(lines), module),
            kind="kernel" if _has_kernel(tree) else "document",
            meta={"language": "python", "summary": doc.strip().split("\n")[0]}
            if doc
            else {"language": "python"},
            notes=list(file.notes),
        )


def _sections(tree: ast.Module, count: int, module: str) -> list[LoadedSection]:
    """The module's definitions; what lies between them belongs to the module itself."""
    sections: list[LoadedSection] = []
    after = 1
    for node in tree.body:
        if not isinstance(node, _Definition):
            continue
        start, end = _span(node)
        if start > after:
            sections.append(LoadedSection(module, after, start - 1))
        sections += _definition(node, module)
        after = end + 1
    if after <= count:
        sections.append(LoadedSection(module, after, count))
    return sections


def _definition(node: _Definition, path: str) -> list[LoadedSection]:
    start, end = _span(node)
    here = f"{path}{SEPARATOR}{_heading(node)}"
    if not isinstance(node, ast.ClassDef):
        return [LoadedSection(here, start, end)]
    members = [m for m in node.body if isinstance(m, _Definition)]
    sections = []
    after = start
    for member in members:
        first, last = _span(member)
        if first > after:
            sections.append(LoadedSection(here, after, first - 1))
        sections += _definition(member, here)
        after = last + 1
    if after <= end:
        sections.append(LoadedSection(here, after, end))
    return sections


def _span(node: _Definition) -> tuple[int, int]:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return first, node.end_lineno or node.lineno


def _heading(node: _Definition) -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
    arguments = ", ".join(a.arg for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs])
    return f"{node.name}({arguments})"


def _has_kernel(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(
            _last(d) in _KERNEL_DECORATORS for d in node.decorator_list
        ):
            return True
        if isinstance(node, ast.Call) and _last(node.func) in _KERNEL_CALLS:
            return True
    return False


def _last(node: ast.expr) -> str:
    """`jit` of `@triton.jit` and of `@triton.jit(debug=True)`."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
