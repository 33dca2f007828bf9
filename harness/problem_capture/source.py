"""The part of a program that some of its classes and functions need, as one text without imports of its own
files.

Top-level statements are followed by the names that they use, through the files of the program. Imports of the
standard library and of installed packages stay; imports of the program's own files are replaced by what
they name.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import site
import symtable
import sys
import sysconfig
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.fft
import torch.linalg
import torch.special

from harness.errors import ProblemError

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class NotSelfContained(ProblemError):
    """Something that is needed cannot be copied into one file."""


@dataclass
class _File:
    """One file of the program: where its top-level names are bound, and what is taken from it so far."""

    module: str
    package: str
    path: Path
    lines: list[str]
    bindings: dict[str, list[ast.stmt]]
    future: bool
    taken: dict[int, tuple[int, str]] = field(default_factory=dict)  # first line → (last line, text)
    done: set[str] = field(default_factory=set)


class Closure:
    """Collects objects with everything they need; `text` is then a file that defines them all."""

    def __init__(self) -> None:
        self.packages: set[str] = set()  # installed packages beside torch that the text imports
        self._files: dict[str, _File] = {}
        self._needs: dict[str, set[str]] = {}
        self._imports: set[str] = set()
        self._owners: dict[str, tuple[str, Any]] = {}

    def add(self, thing: Any) -> str:
        """Takes a class or function in; returns the expression that names it. Raises NotSelfContained."""
        name, module = getattr(thing, "__qualname__", ""), getattr(thing, "__module__", None) or ""
        if not name or "<" in name:
            raise NotSelfContained(
                f"{name or thing!r} is no name at the top level of a file", "define it there"
            )
        top = name.partition(".")[0]
        if module == "builtins":
            return str(name)
        if public := public_name(thing):
            self._imports.add("import torch")
            return public
        if _installed(module):
            self._own(top, module)
            self._import_from(module, top, top)
        else:
            self._take(self._file(module), top, name)
        return str(name)

    def need(self, line: str) -> None:
        """An import line of the standard library or torch that the text has in any case."""
        self._imports.add(line)

    def defines(self, name: str) -> bool:
        """Whether the text gives this name a meaning of its own."""
        return name in self._owners

    def text(self) -> str:
        """Imports, then the statements, files in the order of their dependence. Raises NotSelfContained."""
        try:
            order = list(TopologicalSorter(self._needs).static_order())
        except CycleError as error:
            files = " and ".join(dict.fromkeys(error.args[1]))
            raise NotSelfContained(f"{files} import each other", "move what is needed to one file") from error
        taken_from = [self._files[name] for name in order]
        head = ["from __future__ import annotations\n"] if any(file.future for file in taken_from) else []
        blocks = ["\n".join([*head, *sorted(self._imports, key=_import_order)])]
        for file in taken_from:
            blocks += [text for _, (_, text) in sorted(file.taken.items())]
        return "\n\n\n".join(filter(None, blocks)) + "\n"

    def _file(self, module: str) -> _File:
        if module not in self._files:
            loaded = sys.modules.get(module) or importlib.import_module(module)
            path = Path(getattr(loaded, "__file__", None) or "")
            if path.suffix != ".py":
                what = f"the compiled module {module}" if path.suffix else f"{module}, which has no file"
                raise NotSelfContained(
                    f"the source of {what} cannot be read", "put the module into a .py file"
                )
            self._files[module] = _read(loaded, module, path)
            self._needs.setdefault(module, set())
        return self._files[module]

    def _take(self, file: _File, name: str, wanted_by: str) -> None:
        if name in file.done:
            return
        file.done.add(name)
        if name not in file.bindings:
            if not hasattr(builtins, name):
                self._take_starred(file, name, wanted_by)
            return
        self._own(name, file.module)
        for statement in file.bindings[name]:
            if isinstance(statement, ast.Import):
                self._take_import(file, statement, name)
            elif isinstance(statement, ast.ImportFrom):
                self._take_from(file, statement, name)
            else:
                self._take_statement(file, statement)

    def _take_statement(self, file: _File, statement: ast.stmt) -> None:
        first, last = _extent(statement, file.lines)
        if first in file.taken:
            return
        text = "\n".join(file.lines[first - 1 : last])
        file.taken[first] = (last, text)
        for node in ast.walk(statement):
            if isinstance(node, ast.ImportFrom | ast.Import):
                for module in _modules(node, file.package):
                    if not _installed(module):
                        raise NotSelfContained(
                            f"{file.path.name}, line {node.lineno}, imports {module} in a nested block",
                            "import it at the top of the file",
                        )
        for name in _global_names(text, str(file.path)):
            self._take(file, name, getattr(statement, "name", f"line {first}"))

    def _take_import(self, file: _File, statement: ast.Import, name: str) -> None:
        for item in statement.names:
            bound = item.asname or item.name.partition(".")[0]
            if bound != name:
                continue
            if not _installed(item.name):
                raise NotSelfContained(
                    f"{file.path.name} uses the module {item.name} as a whole",
                    "import the names it needs: from … import …",
                )
            self._note_package(item.name)
            self._imports.add(
                f"import {item.name} as {item.asname}" if item.asname else f"import {item.name}"
            )

    def _take_from(self, file: _File, statement: ast.ImportFrom, name: str) -> None:
        if statement.module == "__future__":
            return
        (module,) = _modules(statement, file.package)
        for item in statement.names:
            if (item.asname or item.name) != name:
                continue
            if _installed(module):
                self._import_from(module, item.name, name)
                return
            source = self._file(module)
            if item.name not in source.bindings and _is_module(f"{module}.{item.name}"):
                raise NotSelfContained(
                    f"{file.path.name} uses the module {module}.{item.name} as a whole",
                    "import the names it needs: from … import …",
                )
            if module != file.module:
                self._needs[file.module].add(module)
            self._take(source, item.name, name)
            if item.name != name:
                first = statement.lineno
                before = file.taken.get(first, (first, ""))[1]
                file.taken[first] = (first, "\n".join(filter(None, [before, f"{name} = {item.name}"])))

    def _take_starred(self, file: _File, name: str, wanted_by: str) -> None:
        """A name that the file does not bind itself: from a star import, or made while it runs."""
        for statement in file.bindings.get("*", []):
            assert isinstance(statement, ast.ImportFrom)
            (module,) = _modules(statement, file.package)
            if hasattr(importlib.import_module(module), name):
                replaced = ast.ImportFrom(statement.module, [ast.alias(name)], statement.level)
                self._take_from(file, replaced, name)
                return
        if hasattr(sys.modules.get(file.module), name) and not name.startswith("__"):
            raise NotSelfContained(
                f"{name}, which {wanted_by} uses, is set by no statement of {file.path.name}",
                "define it at the top level of the file",
            )

    def _import_from(self, module: str, name: str, bound: str) -> None:
        self._note_package(module)
        self._imports.add(f"from {module} import {name}" + (f" as {bound}" if bound != name else ""))

    def _note_package(self, module: str) -> None:
        top = module.partition(".")[0]
        if top != "torch" and top not in sys.stdlib_module_names:
            self.packages.add(top)

    def _own(self, name: str, module: str) -> None:
        """One name has one meaning in the text. `module` is where the program reads it."""
        value = getattr(sys.modules.get(module), name, None)
        owner, meaning = self._owners.setdefault(name, (module, value))
        if owner != module and not _same(meaning, value):
            raise NotSelfContained(
                f"{name} means something else in {owner} than in {module}", "rename one of them"
            )


def _read(loaded: ModuleType, module: str, path: Path) -> _File:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    bindings: dict[str, list[ast.stmt]] = {}
    future = False
    for statement in tree.body:
        if _type_checking_only(statement):
            continue
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            future = future or any(item.name == "annotations" for item in statement.names)
        for name in _bound_names(statement):
            bindings.setdefault(name, []).append(statement)
    package = getattr(loaded, "__package__", None) or ""
    return _File(module, package, path, source.splitlines(), bindings, future)


def _bound_names(statement: ast.stmt) -> set[str]:
    """Names that a top-level statement binds, also inside its blocks; `*` for a star import."""
    names: set[str] = set()
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, Definition):
            names.add(node.name)
            continue
        if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            continue
        if isinstance(node, ast.Import):
            names.update(item.asname or item.name.partition(".")[0] for item in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(item.asname or item.name for item in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        pending.extend(ast.iter_child_nodes(node))
    return names


def _type_checking_only(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING")


def _extent(statement: ast.stmt, lines: list[str]) -> tuple[int, int]:
    """First and last line with decorators and the comment right above."""
    first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
    while first > 1 and lines[first - 2].startswith("#") and not lines[first - 2].startswith("#!"):
        first -= 1
    return first, statement.end_lineno or statement.lineno


def _global_names(text: str, where: str) -> set[str]:
    """Names that a piece of top-level code takes from its module."""
    table = symtable.symtable(text, where, "exec")
    names = {s.get_name() for s in table.get_symbols() if s.is_referenced() or s.is_assigned()}
    pending = list(table.get_children())
    while pending:
        scope = pending.pop()
        names.update(s.get_name() for s in scope.get_symbols() if s.is_global())
        pending.extend(scope.get_children())
    return names


def _modules(node: ast.Import | ast.ImportFrom, package: str) -> list[str]:
    """The absolute names of the modules that an import names."""
    if isinstance(node, ast.Import):
        return [item.name for item in node.names]
    relative = "." * node.level + (node.module or "")
    return [importlib.util.resolve_name(relative, package) if node.level else relative]


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def public_name(thing: Any) -> str:
    """Where torch offers something itself, whatever module it lies in; empty where it does not."""
    last = getattr(thing, "__name__", "")
    for place in (torch, torch.nn, torch.nn.functional, torch.linalg, torch.special, torch.fft):
        if getattr(place, last, None) is thing:
            return f"{place.__name__}.{last}"
    return ""


def _same(first: Any, second: Any) -> bool:
    plain = isinstance(first, bool | int | float | str) and type(first) is type(second)
    return first is second or (plain and first == second)


def _installed(module: str) -> bool:
    """Whether a module belongs to the standard library or to an installed package, not to the program."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names and top != "__main__":
        return True
    loaded = sys.modules.get(top)
    spec = getattr(loaded, "__spec__", None)
    if loaded is None:
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            return True  # an optional package that is not there: the import stays what it is
    places = [getattr(loaded, "__file__", None), getattr(spec, "origin", None)]
    places += list(getattr(spec, "submodule_search_locations", None) or [])
    found = [Path(place).resolve() for place in places if place and place not in ("built-in", "frozen")]
    return any(path.is_relative_to(root) for path in found for root in _ROOTS) or not found


def _roots() -> list[Path]:
    """Where packages are installed. The standard library is known by name: on some systems its folder holds
    much else.
    """
    paths = sysconfig.get_paths()
    listed = [paths["purelib"], paths["platlib"], *site.getsitepackages(), site.getusersitepackages()]
    return list(dict.fromkeys(Path(path).resolve() for path in listed))


_ROOTS = _roots()


def _import_order(line: str) -> tuple[bool, bool, str]:
    top = line.split()[1].partition(".")[0]
    return top not in sys.stdlib_module_names, line.startswith("from"), line
