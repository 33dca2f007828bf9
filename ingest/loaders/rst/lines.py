"""Lines of rendered text that remember which lines of the file they were made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """`text` without its line end, made from lines `first`..`last` of the file, 1-based and inclusive."""

    text: str
    first: int
    last: int

    @property
    def blank(self) -> bool:
        return not self.text.strip()

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip(" "))

    def at(self, text: str) -> Line:
        """Another text in the same place."""
        return Line(text, self.first, self.last)


def numbered(text: str) -> list[Line]:
    """The lines of a file; tabs become blanks, since indentation carries meaning."""
    return [Line(line.expandtabs(8), n, n) for n, line in enumerate(text.split("\n"), start=1)]


def all_at(text: str, place: Line) -> list[Line]:
    """The lines of another file, which are cited by the line that included them."""
    return [place.at(line.expandtabs(8)) for line in text.split("\n")]


def dedent(lines: Sequence[Line]) -> list[Line]:
    """Without the indentation that all lines share, and without blank lines around."""
    kept = strip_blank(lines)
    margin = min((line.indent for line in kept if not line.blank), default=0)
    return [line.at(line.text[margin:]) for line in kept]


def strip_blank(lines: Sequence[Line]) -> list[Line]:
    start, end = 0, len(lines)
    while start < end and lines[start].blank:
        start += 1
    while end > start and lines[end - 1].blank:
        end -= 1
    return list(lines[start:end])


def indented_after(lines: Sequence[Line], start: int, indent: int) -> int:
    """The end of the run from `start` that is blank or indented by more than `indent`, blank lines at its
    end left out.
    """
    end = start
    for i in range(start, len(lines)):
        if lines[i].blank:
            continue
        if lines[i].indent <= indent:
            break
        end = i + 1
    return end


def fenced(code: Sequence[Line], language: str = "") -> list[Line]:
    """The lines between fences that they do not contain."""
    mark = "~~~~" if any("```" in line.text for line in code) else "```"
    return [code[0].at(mark + language), *code, code[-1].at(mark)] if code else []
