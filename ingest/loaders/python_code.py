"""Python sources: one section per function, class head and method, its qualified signature as heading.

Sections hold the file's own lines, docstring included: that is what a citation points to. A definition that
is too long for one chunk is cut after its docstring, so that signature and documentation stay together.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ingest.blocks import CHUNK_CHARACTERS
from ingest.document import FileContent, LoadedDocument, LoadedSection, Loader
from ingest.loaders.gallery import headings
from ingest.loaders.kernel_languages import kernels_of
from ingest.loaders.markdown import SEPARATOR
from ingest.loaders.rst.inline import without_roles
from ingest.measurements import attach, tables_beside

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = _Function | ast.ClassDef
_COMMENT = re.compile(r"^(\s*)#+ ?")
_HEADING_CHARACTERS = 100  # of the arguments; the whole signature stands in the text


class PythonLoader(Loader):
    """Python sources and stubs that parse; others are cut by lines, with a note that says why.

    `meta` holds `module`, `language`, the first line of the module's documentation as `summary`, and the
    names of the `kernels`; with times beside the source also `measurements` and `best_speedup`.
    """

    name = "python"
    version = 3
    priority = 40

    def accepts(self, file: FileContent) -> bool:
        return file.suffix in (".py", ".pyi")

    def load(self, file: FileContent) -> LoadedDocument:
        lines = file.text.split("\n")
        module = module_name(file.path, file.root)
        try:
            tree = ast.parse(file.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last for deep nesting
            reason = str(error) or "nested too deeply"
            note = f"not valid Python ({reason}); cut by lines instead of by definitions"
            whole = LoadedSection(module, 1, max(1, len(lines)))
            return LoadedDocument(title=module, sections=[whole], notes=[*file.notes, note])
        kernels, language = kernels_of(tree)
        doc = ast.get_docstring(tree) or ""
        meta: dict[str, Any] = {
            "language": language or "python",
            "module": module,
            "summary": doc.strip().partition("\n")[0],
            "kernels": sorted(kernels),
        }
        attach(meta, file.path, file.root, kernels)
        return LoadedDocument(
            title=module,
            sections=_Sections(tree, lines, module, kernels).all(),
            kind="kernel" if kernels or "measurements" in meta else "document",
            meta={key: value for key, value in meta.items() if value},
            notes=list(file.notes),
            plain=_plain,
        )

    def dependencies(self, path: Path, root: Path) -> list[Path]:
        return tables_beside(path, root)


def _plain(line: str) -> str:
    return without_roles(_COMMENT.sub(r"\1", line))


def module_name(path: Path, root: Path | None) -> str:
    """`a.b.c` for `a/b/c.py` where `a` and `b` are packages; for an `__init__.py` the package."""
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file() or (folder / "__init__.pyi").is_file():
        parts.insert(0, folder.name)
        if folder in (root, folder.parent):
            break
        folder = folder.parent
    return ".".join(parts) or path.parent.name


class _Sections:
    """The definitions of a module; what lies between them belongs to what encloses them."""

    def __init__(self, tree: ast.Module, lines: Sequence[str], module: str, kernels: Collection[str]) -> None:
        self._tree = tree
        self._lines = lines
        self._module = module
        self._exported = _exported(tree)
        self._kernels = kernels
        self._headings = list(headings(lines))
        self._above: list[tuple[int, str]] = []  # the headings that hold now, with their levels

    def all(self) -> list[LoadedSection]:
        """Public definitions first, else in the order of the file."""
        public: list[LoadedSection] = []
        private: list[LoadedSection] = []
        after = 1
        for group in _groups(self._tree.body):
            start, end = self._span(group)
            public += self._between(after, start - 1)
            own = public if self._is_public(group[-1].name) else private
            own += self._definition(group, self._module)
            after = end + 1
        return public + list(self._between(after, len(self._lines))) + private

    def _between(self, first: int, last: int) -> Iterator[LoadedSection]:
        """What is no definition, under the headings that its comments have."""
        while self._headings and self._headings[0][0] <= last:
            line, level, text = self._headings.pop(0)
            if line > first:
                yield LoadedSection(self._path(), first, line - 1)
            self._above = [h for h in self._above if h[0] < level] + [(level, text)]
            first = max(first, line)  # it may stand in the comment above a definition
        if first <= last:
            yield LoadedSection(self._path(), first, last)

    def _path(self) -> str:
        return SEPARATOR.join([self._module, *(text for _, text in self._above)])

    def _is_public(self, name: str) -> bool:
        """As `__all__` says, else by name; kernels are what their file is about, whatever they are called."""
        named = name in self._exported if self._exported else not name.startswith("_")
        return named or name in self._kernels

    def _definition(self, group: Sequence[_Definition], outer: str) -> list[LoadedSection]:
        start, end = self._span(group)
        node = group[-1]
        name = f"{outer}.{node.name}"
        if not isinstance(node, ast.ClassDef):
            return list(self._after_docstring(LoadedSection(name + _signature(node), start, end), node))
        here = f"class {name}{_bases(node)}"
        sections = []
        after = start
        for members in _groups(node.body):
            first, last = self._span(members)
            if first > after:
                sections.append(LoadedSection(here, after, first - 1))
            sections += self._definition(members, name)
            after = last + 1
        if after <= end:
            sections.append(LoadedSection(here, after, end))
        return sections

    def _span(self, group: Sequence[_Definition]) -> tuple[int, int]:
        """With decorators, and the comment directly above."""
        first = min([group[0].lineno, *(d.lineno for d in group[0].decorator_list)])
        while first > 1 and self._lines[first - 2].lstrip().startswith("#"):
            first -= 1
        return first, group[-1].end_lineno or group[-1].lineno

    def _after_docstring(self, section: LoadedSection, node: _Function) -> Iterator[LoadedSection]:
        size = sum(len(line) + 1 for line in self._lines[section.start_line - 1 : section.end_line])
        documented = len(node.body) > 1 and ast.get_docstring(node, clean=False) is not None
        doc_end = node.body[0].end_lineno or 0
        if size <= CHUNK_CHARACTERS or not documented or doc_end >= section.end_line:
            yield section
            return
        yield replace(section, end_line=doc_end)
        yield replace(section, start_line=doc_end + 1)


def _groups(body: Sequence[ast.stmt]) -> Iterator[list[_Definition]]:
    """The definitions in `body` and in the conditions around them. Those of one name that follow one another
    are one: overloads with what they are overloads of, a property with its setter.
    """
    group: list[_Definition] = []
    for node in _definitions(body):
        related = group and group[-1].name == node.name and not isinstance(node, ast.ClassDef)
        if group and not (related and isinstance(group[-1], _Function)):
            yield group
            group = []
        group.append(node)
    if group:
        yield group


def _definitions(body: Sequence[ast.stmt]) -> Iterator[_Definition]:
    for node in body:
        if isinstance(node, _Definition):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _definitions(node.body)
            for handler in getattr(node, "handlers", []):
                yield from _definitions(handler.body)
            for rest in ("orelse", "finalbody"):
                yield from _definitions(getattr(node, rest, []))


def _signature(node: _Function) -> str:
    """With annotations and defaults where that is short, else names alone."""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    full = f"({ast.unparse(node.args)}){returns}"
    if len(full) <= _HEADING_CHARACTERS:
        return full
    args = node.args
    star = [f"*{args.vararg.arg}"] if args.vararg else ["*"] if args.kwonlyargs else []
    names = [a.arg for a in [*args.posonlyargs, *args.args]]
    names += [*star, *(a.arg for a in args.kwonlyargs), *([f"**{args.kwarg.arg}"] if args.kwarg else [])]
    while len(", ".join(names)) > _HEADING_CHARACTERS:
        names = [*names[:-2], "…"]
    return f"({', '.join(names)})"


def _bases(node: ast.ClassDef) -> str:
    bases = ", ".join(ast.unparse(b) for b in node.bases)
    return f"({bases})" if bases and len(bases) <= _HEADING_CHARACTERS else ""


def _exported(tree: ast.Module) -> set[str]:
    """The names in `__all__`, as far as they are written out."""
    names: set[str] = set()
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            value = getattr(node, "value", None)
            if isinstance(value, ast.List | ast.Tuple):
                names |= {
                    e.value for e in value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)
                }
    return names
