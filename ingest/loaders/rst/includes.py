"""Other files that a document names: found within its source only, read once, cut as the options say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.document import FileContent
from ingest.errors import Unreadable
from ingest.loaders.rst.lines import Line, all_at, fenced
from ingest.reading import decode, read_bytes

if TYPE_CHECKING:
    from ingest.loaders.rst.scanner import Directive, Scanner

MAX_BYTES = 2_000_000
MAX_FILES = 200  # of one document; includes that multiply would not end
_NAMED = re.compile(r"^[ \t]*\.\. +(?:(?:literal)?include) ?::[ \t]+(\S.*?)[ \t]*$", re.MULTILINE)
_FILE_OPTION = re.compile(r"^[ \t]+:file:[ \t]+(\S.*?)[ \t]*$", re.MULTILINE)


class Refused(Exception):
    """A file that is not read, and why."""


class SourceFolder:
    """The files that the document `path` may name: those inside `root`, its source's folder."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self.whole = root.is_dir()  # else the source is this one file
        self.root = (root if self.whole else root.parent).resolve()
        self._read = 0

    def find(self, name: str, by: Path) -> Path:
        """The file that `by` calls `name`; from the documentation's top when that begins with a slash.

        Raises Refused for one outside the source. The file need not exist.
        """
        name = name.strip().strip("<>\"'")
        base = by.parent
        if name.startswith("/"):
            base, name = self._top(by), name.lstrip("/")
        try:
            found = (base / name).resolve()
        except (OSError, ValueError, RuntimeError) as error:  # a NUL, a circle of links
            raise Refused(f"{name}: cannot be resolved") from error
        if not found.is_relative_to(self.root):
            raise Refused(f"{name}: outside the source, not read")
        return found

    def _top(self, by: Path) -> Path:
        """Sphinx counts from the folder of conf.py; without one from the source's folder."""
        for folder in by.resolve().parents:
            if (folder / "conf.py").is_file() or folder == self.root:
                return folder if folder.is_relative_to(self.root) else self.root
        return self.root

    def configuration(self) -> Path | None:
        """The `conf.py` of Sphinx that the document belongs to."""
        file = self._top(self.path) / "conf.py"
        return file if file.is_file() and file.resolve().is_relative_to(self.root) else None

    def read(self, file: Path) -> str:
        """Its text. Raises Refused."""
        self._read += 1
        if self._read > MAX_FILES:
            raise Refused(f"more than {MAX_FILES} files are included")
        try:
            return decode(read_bytes(file, MAX_BYTES), file)[0]
        except Unreadable as error:
            raise Refused(f"{file.name}: {error}") from error

    def is_document(self, file: Path) -> bool:
        """Whether ingesting the source reads `file` anyway: then its text is cited from there."""
        if not self.whole or not file.is_file() or any(p.startswith(".") for p in _inner(file, self.root)):
            return False
        try:
            text = self.read(file)
        except Refused:
            return False
        from ingest.registry import loaders

        content = FileContent(file, b"", text)
        return any(loader.accepts(content) for loader in loaders())


def _inner(file: Path, root: Path) -> tuple[str, ...]:
    return file.relative_to(root).parts


class Includes:
    """The files that one document includes; `problems` says which could not be, and why."""

    def __init__(self, folder: SourceFolder) -> None:
        self.problems: list[str] = []
        self._folder = folder
        self._stack = [folder.path.resolve()]  # the file being scanned, below those that include it

    def lines(self, name: str, place: Line) -> list[Line]:
        """The lines of a data file; none when it cannot be read."""
        try:
            return all_at(self._folder.read(self._folder.find(name, self._stack[-1])), place)
        except Refused as refusal:
            self._problem(refusal, place)
            return []

    def literal(self, d: Directive) -> list[Line]:
        """What a `literalinclude` shows."""
        try:
            text = self._folder.read(self._folder.find(d.argument, self._stack[-1]))
            return all_at("\n".join(selected(text, d.options)), d.place)
        except Refused as refusal:
            self._problem(refusal, d.place)
            return []

    def include(self, scanner: Scanner, d: Directive) -> None:
        """Scan the file in place, unless it is a document itself: then it is cited under its own name."""
        try:
            file = self._folder.find(d.argument, self._stack[-1])
            if file in self._stack:
                raise Refused(f"{d.argument}: includes itself")
            text = self._folder.read(file)
            scanner.definitions.add(text)
            if self._folder.is_document(file):
                scanner.emit_all([d.place.at(f"Included here: {d.argument}")], d.prefix)
                return
            lines = all_at("\n".join(selected(text, d.options)), d.place)
        except Refused as refusal:
            self._problem(refusal, d.place)
            return
        if d.options.keys() & {"literal", "code", "parser"}:
            scanner.emit_all(fenced(lines, d.options.get("code", "")), d.prefix)
            return
        self._stack.append(file)
        try:
            scanner.scan(lines, d.prefix, nested=bool(d.prefix))
        finally:
            self._stack.pop()

    def _problem(self, refusal: Refused, place: Line) -> None:
        self.problems.append(f"line {place.first}: {refusal}")


def named_files(text: str, by: Path, folder: SourceFolder) -> list[Path]:
    """What the file `by` with this text is made from besides itself, included files of included files too.

    Only files inside the source; they need not exist.
    """
    found: dict[Path, None] = {}

    def visit(text: str, by: Path) -> None:
        for match in [*_NAMED.finditer(text), *_FILE_OPTION.finditer(text)]:
            try:
                file = folder.find(match[1], by)
                if file == folder.path.resolve() or file in found:
                    continue
                found[file] = None
                if match.re is _NAMED and "literal" not in match[0]:
                    visit(folder.read(file), file)
            except Refused:
                continue

    visit(text, by)
    return sorted(found)


def selected(text: str, options: Mapping[str, str]) -> list[str]:
    """The lines of a literally included file that `lines`, `start-at`, `pyobject` and their like choose.

    Raises Refused when they choose nothing that is there.
    """
    lines = text.rstrip("\n").split("\n")
    if "pyobject" in options:
        first, last = _python_object(text, options["pyobject"])
        lines = lines[first - 1 : last]
    if options.keys() & {"start-line", "end-line"}:
        lines = lines[_line_number(options, "start-line") : _line_number(options, "end-line")]
    for option, shift in (("start-at", 0), ("start-after", 1)):
        if options.get(option):
            lines = lines[_position(lines, options[option]) + shift :]
    for option, shift in (("end-at", 1), ("end-before", 0)):
        if options.get(option):
            lines = lines[: _position(lines, options[option]) + shift]
    if options.get("lines"):
        lines = [lines[n] for n in _numbers(options["lines"], len(lines))]
    if not lines:
        raise Refused("its options select no line")
    return lines


def _line_number(options: Mapping[str, str], option: str) -> int | None:
    value = options.get(option, "")
    return int(value) if re.fullmatch(r"-?\d+", value) else None


def _position(lines: list[str], needle: str) -> int:
    for i, line in enumerate(lines):
        if needle in line:
            return i
    raise Refused(f"no line contains {needle!r}")


def _numbers(ranges: str, count: int) -> Iterator[int]:
    """Indices of `1,3-5,8-`."""
    for part in ranges.split(","):
        match = re.fullmatch(r"\s*(\d*)\s*(-?)\s*(\d*)\s*", part)
        if not match:
            raise Refused(f"cannot read the line numbers {ranges!r}")
        first = int(match[1] or 1)
        last = int(match[3] or count) if match[2] else first
        yield from range(max(first, 1) - 1, min(last, count))


def _python_object(text: str, name: str) -> tuple[int, int]:
    try:
        body: list[ast.stmt] = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"no object {name!r}: not valid Python") from error
    found: ast.stmt | None = None
    for part in name.split("."):
        found = next((n for n in body if getattr(n, "name", None) == part), None)
        if found is None:
            raise Refused(f"no object {name!r}")
        body = getattr(found, "body", [])
    assert found is not None
    first = min([found.lineno, *(d.lineno for d in getattr(found, "decorator_list", []))])
    return first, found.end_lineno or found.lineno
