"""Markdown made from formats that are no plain text: the lines that sections and citations refer to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ingest.document import LoadedDocument
from ingest.loaders.markdown import sections_of

_DROPPED = re.compile("[\x00-\x08\x0e-\x1f\x7f\u00ad\u200b\u2060\ufeff]")
_BLANKS = re.compile("[\x0b\x0c\x85\xa0\u2000-\u200a\u2028\u2029\u202f\u3000]")


def clean(text: str) -> str:
    """Without control and invisible characters and lone surrogates; blanks of all kinds are blanks."""
    text = _BLANKS.sub(" ", _DROPPED.sub("", text))
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


class MarkdownWriter:
    """Blocks one after the other, with a blank line between them."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._headings: list[tuple[int, int, str]] = []
        self._page_starts: list[int] = []

    @property
    def headings(self) -> list[tuple[int, int, str]]:
        """(line index, level, text), as `sections_of` takes them."""
        return self._headings

    @property
    def empty(self) -> bool:
        return not self._lines

    def start_page(self) -> None:
        """What follows is on the next page."""
        self._page_starts.append(len(self._lines) + 1)

    def heading(self, level: int, text: str) -> None:
        """A heading of level 1 to 6; deeper ones are written as the sixth."""
        self.block([f"{'#' * min(level, 6)} {text}"])
        self._headings.append((len(self._lines) - 1, level, text))

    def resume(self, level: int, text: str) -> None:
        """What follows belongs to an earlier heading again."""
        self._headings.append((len(self._lines), level, text))

    def block(self, lines: Sequence[str], *, tight: bool = False) -> int:
        """Lines that belong together; `tight`: no blank line before. Returns the index of the first one."""
        if self._lines and not tight:
            self._lines.append("")
        first = len(self._lines)
        self._lines += lines
        return first

    def code(self, lines: Sequence[str], language: str = "") -> None:
        """Lines of code in a fence that none of them can close."""
        self.block(fenced(lines, language))

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]], indent: str = "") -> None:
        """A table whose rows have as many cells as its header; a header of empty texts is written, too."""
        lines = [_row(header), "|" + " --- |" * len(header), *map(_row, rows)]
        self.block([indent + line for line in lines])

    def markdown(self, text: str, headings: Iterable[tuple[int, int, str]]) -> None:
        """Text that is Markdown already, with the headings found in it."""
        first = self.block(text.split("\n"))
        self._headings += [(first + index, level, heading) for index, level, heading in headings]

    def document(self, title: str) -> LoadedDocument:
        """What was written, as sections of its lines."""
        return LoadedDocument(
            title=title,
            sections=sections_of(self._headings, 0, self._lines),
            text="\n".join(self._lines),
            page_starts=self._page_starts,
        )


def fenced(lines: Sequence[str], language: str = "") -> list[str]:
    """A fence longer than any run of backticks that starts a line of the code."""
    longest = max((len(run[0]) for line in lines if (run := re.match(r"`+", line.lstrip()))), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + language, *lines, fence]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
