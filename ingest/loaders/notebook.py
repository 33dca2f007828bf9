"""Jupyter notebooks: text and code in their order, without outputs and images."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ingest.document import FileContent, LoadedDocument, Loader
from ingest.errors import Unreadable
from ingest.loaders.markdown import find_headings, plain_line
from ingest.rendering import MarkdownWriter, clean

_IMAGE = re.compile(
    r"!\[[^\]]*\]\((?:data:|attachment:)[^)]*\)|<img\b[^>]*\bsrc\s*=\s*[\"']?(?:data:|attachment:)[^>]*>",
    re.IGNORECASE,
)
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
# The magics that say in which language a cell is written; others leave it the notebook's.
_MAGIC = re.compile(r"\s*%%(\w+)(?:[ \t]+(?:-\S+[ \t]+)*(\S+))?")
_MAGIC_LANGUAGES = {
    "bash": "bash", "sh": "bash", "script": "bash", "html": "html", "javascript": "javascript",
    "js": "javascript", "latex": "latex", "markdown": "markdown", "cython": "cython", "cpp": "cpp",
    "cu": "cuda", "cuda": "cuda", "sql": "sql", "perl": "perl", "ruby": "ruby", "R": "r",
}  # fmt: skip
_SUFFIX_LANGUAGES = {
    "py": "python", "c": "c", "h": "c", "cc": "cpp", "cpp": "cpp", "hpp": "cpp", "cu": "cuda", "cuh": "cuda",
    "cl": "c", "sh": "bash", "json": "json", "toml": "toml", "yaml": "yaml", "yml": "yaml", "md": "markdown",
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """`kind` is markdown, code, raw or heading; `level` belongs to headings (nbformat 3)."""

    kind: str
    source: str
    level: int = 1


class NotebookLoader(Loader):
    """Notebooks of nbformat 2 to 4."""

    name = "notebook"
    version = 1
    priority = 60

    def accepts(self, file: FileContent) -> bool:
        return file.suffix == ".ipynb"

    def load(self, file: FileContent) -> LoadedDocument:
        notebook = parse(file.text)
        language = _language(notebook)
        writer = MarkdownWriter()
        for cell in cells(notebook):
            _write(writer, cell, language)
        if writer.empty:
            raise Unreadable("the notebook has no text and no code")
        headings = writer.headings
        top = next((text for _, level, text in headings if level == 1), headings[0][2] if headings else "")
        document = writer.document(top or file.path.stem)
        document.meta = {"language": language}
        document.notes = list(file.notes)
        document.plain = plain_line
        return document


def parse(text: str) -> dict[str, Any]:
    """The notebook's JSON object. Raises Unreadable."""
    try:
        # Python refuses numbers of thousands of digits; no number of a notebook is read here.
        notebook = json.loads(text, parse_int=lambda digits: int(digits[:9]))
    except json.JSONDecodeError as error:
        raise Unreadable(
            f"not a notebook: line {error.lineno}, column {error.colno}: {error.msg}",
            "the file may be cut off; fetch or save it again",
        ) from error
    if not isinstance(notebook, dict) or not isinstance(
        notebook.get("cells", notebook.get("worksheets")), list
    ):
        raise Unreadable("not a notebook: JSON without cells")
    return notebook


def cells(notebook: dict[str, Any]) -> Iterator[Cell]:
    """Cells with text in them. Raises Unreadable for what is no cell."""
    found = notebook.get("cells")
    if found is None:  # nbformat 2 and 3
        found = [
            c for sheet in notebook["worksheets"] if isinstance(sheet, dict) for c in sheet.get("cells") or []
        ]
    for number, cell in enumerate(found, start=1):
        if not isinstance(cell, dict):
            raise Unreadable(f"not a notebook: cell {number} is no object")
        source = cell.get("source", cell.get("input", "")) or ""
        if isinstance(source, list):
            source = "".join(part for part in source if isinstance(part, str))
        if not isinstance(source, str):
            raise Unreadable(f"not a notebook: the source of cell {number} is no text")
        kind = str(cell.get("cell_type"))
        source = clean(source.replace("\r\n", "\n").replace("\r", "\n"))
        if kind in ("markdown", "heading", "html"):
            source = _IMAGE.sub("", source)
        level = cell.get("level", 1)
        if source.strip():
            yield Cell(kind, source, level if isinstance(level, int) and 1 <= level <= 6 else 1)


def _write(writer: MarkdownWriter, cell: Cell, language: str) -> None:
    source = cell.source.strip("\n")
    if cell.kind == "code":
        writer.code(source.rstrip().split("\n"), _cell_language(source, language))
    elif cell.kind == "heading":
        writer.heading(cell.level, " ".join(source.split()))
    else:
        lines = [line.rstrip() for line in source.split("\n")]
        lines += _closing(lines)
        writer.markdown("\n".join(lines), find_headings(lines, 0))


def _closing(lines: list[str]) -> list[str]:
    """The end of a fence that was left open: it must not swallow the cells that follow."""
    fence = ""
    for line in lines:
        mark = _FENCE.match(line)
        if not fence:
            fence = mark[1] if mark else ""
        elif mark and mark[1].startswith(fence) and not line.strip(" `~"):
            fence = ""
    return [fence] if fence else []


def _language(notebook: dict[str, Any]) -> str:
    metadata = notebook.get("metadata")
    for table, key in (("language_info", "name"), ("kernelspec", "language")):
        entry = metadata.get(table) if isinstance(metadata, dict) else None
        name = entry.get(key) if isinstance(entry, dict) else None
        if isinstance(name, str) and re.fullmatch(r"[\w+#.-]+", name):
            return name.lower()
    return "python"


def _cell_language(source: str, default: str) -> str:
    magic = _MAGIC.match(source)
    if magic is None:
        return default
    if magic[1] in ("writefile", "file"):
        return _SUFFIX_LANGUAGES.get((magic[2] or "").rpartition(".")[2].lower(), "")
    return _MAGIC_LANGUAGES.get(magic[1], default)
