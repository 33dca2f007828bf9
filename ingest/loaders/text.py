"""Plain text: sections by underlined headings, or those of AsciiDoc."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ingest.document import FileContent, LoadedDocument, Loader
from ingest.loaders.markdown import sections_of

_ASCIIDOC = {".adoc", ".asciidoc", ".asc"}
_SUFFIXES = {"", ".txt", ".text", ".log", ".org", ".tex"} | _ASCIIDOC
_MARKED = re.compile(r"(={1,6}) +(\S.*)")
_BLOCK = re.compile(
    r"(?:-{4,}|\.{4,}|/{4,}|\+{4,}|`{3,})\s*$"
)  # code, literals and comments; ends as it began
_UNDERLINE = re.compile(r"([=\-~^\"'`#*+.:_<>])\1{2,}\s*$")


class TextLoader(Loader):
    """Whatever is text and belongs to no other loader."""

    name = "text"
    version = 3
    priority = 0

    def accepts(self, file: FileContent) -> bool:
        return file.suffix in _SUFFIXES

    def load(self, file: FileContent) -> LoadedDocument:
        lines = file.text.split("\n")
        marked = file.suffix in _ASCIIDOC
        headings = (marked_headings(lines) if marked else []) or underlined_headings(lines)
        title = headings[0][2] if headings else file.path.stem
        return LoadedDocument(title=title, sections=sections_of(headings, 0, lines), notes=list(file.notes))


def marked_headings(lines: Sequence[str]) -> list[tuple[int, int, str]]:
    """(line index, level, text) of AsciiDoc's headings, `== Text`, outside of blocks of code."""
    found: list[tuple[int, int, str]] = []
    block = ""
    for i, line in enumerate(lines):
        if _BLOCK.match(line):
            rule = line.rstrip()
            block = "" if block == rule else block or rule
        elif not block and (heading := _MARKED.fullmatch(line.rstrip())):
            found.append((i, len(heading[1]), heading[2]))
    return found


def underlined_headings(lines: Sequence[str]) -> list[tuple[int, int, str]]:
    """(line index, level, text): a line at the margin over at least as long a rule of one character.

    Levels follow the order in which the characters first appear, with and without an overline apart.
    """
    found: list[tuple[int, int, str]] = []
    levels: dict[str, int] = {}
    for i in range(1, len(lines)):
        rule = _UNDERLINE.match(lines[i])
        text = lines[i - 1]
        if not rule or not text.strip() or text[0].isspace() or _UNDERLINE.match(text):
            continue
        if len(lines[i].rstrip()) < len(text.rstrip()):
            continue
        over = i >= 2 and lines[i - 2].rstrip() == lines[i].rstrip()
        if not over and i >= 2 and lines[i - 2].strip():
            continue  # the last line of a paragraph or of a table
        style = rule[1] + ("o" if over else "")
        level = levels.setdefault(style, len(levels) + 1)
        found.append((i - 2 if over else i - 1, level, text.strip().strip("`")))
    return found
