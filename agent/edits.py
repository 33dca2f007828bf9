"""Edits of a file as models write them: search/replace blocks and unified diffs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_SEARCH = re.compile(r"^(?P<indent>[ \t]*)(?P<marks><{4,})[ \t]*(SEARCH|ORIGINAL)\b.*$", re.IGNORECASE)
_REPLACE = re.compile(r"^[ \t]*>{4,}[ \t]*(REPLACE|UPDATED)\b.*$", re.IGNORECASE)
_HUNK = re.compile(r"^@@(?:[ \t]*-(?P<line>\d+)(?:,\d+)?[ \t]+\+\d+(?:,\d+)?[ \t]*@@)?")
# What ends a hunk besides the next one: a fence, the next file, the end of a patch.
_PATCH = re.compile(
    r"^\*\*\* (Update File|Begin Patch|End Patch|Add File|Delete File|End of File)\b", re.IGNORECASE
)
_GIT = re.compile(r"^(diff --git |index [0-9a-f]{6,})")
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})")
_SHOWN = 60  # characters of a line in a message


class EditFailed(Exception):
    """The edits do not fit the file; the message tells the model which one, and why."""


@dataclass(frozen=True)
class Edit:
    """Lines to find and what stands there afterwards. `line` is where a diff says they begin, from 1."""

    search: tuple[str, ...]
    replace: tuple[str, ...]
    line: int | None = None


@dataclass(frozen=True)
class Edits:
    """All edits of an answer; `end` is the last one's last line in it. `open`: one of them was cut off."""

    edits: tuple[Edit, ...]
    end: int
    open: bool = False


def find_edits(text: str) -> Edits | None:
    """The search/replace blocks of an answer, or the hunks of its diffs; None where it has neither."""
    lines = text.split("\n")
    return _blocks(lines) or _hunks(lines)


def apply_edits(base: str, edits: Sequence[Edit]) -> str:
    """`base` with all edits made, one after the other. Raises EditFailed; then nothing counts."""
    lines = base.split("\n")
    moved = 0  # how far earlier edits have moved what follows them
    for number, edit in enumerate(edits, 1):
        if not edit.search:
            raise EditFailed(f"edit {number} of {len(edits)} does not say what it replaces")
        found = _places(lines, edit.search)
        if not found:
            raise EditFailed(
                f"edit {number} of {len(edits)} does not match the file: {_missing(lines, edit)}"
            )
        if len(found) > 1 and edit.line is None:
            raise EditFailed(
                f"edit {number} of {len(edits)} fits in {len(found)} places: give more lines around it"
            )
        target = (edit.line or 1) - 1 + moved
        start, indent = min(found, key=lambda place: abs(place[0] - target))
        lines[start : start + len(edit.search)] = _indented(edit, indent)
        moved += len(edit.replace) - len(edit.search)
    result = "\n".join(lines)
    if result == base:
        raise EditFailed("the edits change nothing")
    return result


def _blocks(lines: Sequence[str]) -> Edits | None:
    found: list[Edit] = []
    search: list[str] = []
    replace: list[str] = []
    into: list[str] | None = None
    indent, divider, end = "", "", 0
    for number, raw in enumerate(lines):
        line = raw.removeprefix(indent) if into is not None else raw
        if (opening := _SEARCH.match(raw)) and into is not replace:
            # As long as the opening: lines of = also underline headings in docstrings.
            indent, divider, search, replace = opening["indent"], "=" * len(opening["marks"]), [], []
            into = search
        elif into is search and raw.strip() == divider and into is not None:
            into = replace
        elif into is replace and _REPLACE.match(raw):
            found.append(Edit(_trimmed(search), tuple(replace)))
            into, end, indent = None, number, ""
            search, replace = [], []
        elif into is not None:
            into.append(line)
    if not found and into is None:
        return None
    return Edits(tuple(found), end, open=into is not None)


def _hunks(lines: Sequence[str]) -> Edits | None:
    found: list[Edit] = []
    end = 0
    for start, stop, hunk in _hunk_lines(lines):
        body = list(hunk)
        while body and not body[-1].strip():
            body.pop()
        search = [
            text[1:] if text[:1] in ("-", " ") else text for text in body if text[:1] not in ("+", "\\")
        ]
        replace = [
            text[1:] if text[:1] in ("+", " ") else text for text in body if text[:1] not in ("-", "\\")
        ]
        header = _HUNK.match(lines[start])
        line = int(header["line"]) if header and header["line"] else None
        if search != replace:
            found.append(Edit(tuple(search), tuple(replace), line))
            end = stop
    return Edits(tuple(found), end) if found else None


def _hunk_lines(lines: Sequence[str]) -> Iterator[tuple[int, int, Sequence[str]]]:
    """(first line, last line, lines without the header) of every hunk."""
    starts = [n for n, line in enumerate(lines) if line.startswith("@@") or _begins_patch(lines, n)]
    for start in starts:
        stop = start + 1
        while stop < len(lines) and not (
            lines[stop].startswith("@@")
            or any(end.match(lines[stop]) for end in (_FENCE, _PATCH, _GIT))
            or _new_file(lines, stop)
        ):
            stop += 1
        yield start, stop, lines[start + 1 : stop]


def _begins_patch(lines: Sequence[str], number: int) -> bool:
    """A patch may leave out the line of @@ before its only hunk of a file."""
    follows = lines[number + 1] if number + 1 < len(lines) else ""
    return lines[number].startswith("*** Update File") and follows[:1] in ("-", "+", " ")


def _new_file(lines: Sequence[str], number: int) -> bool:
    follows = lines[number + 1] if number + 1 < len(lines) else ""
    return lines[number].startswith("--- ") and follows.startswith("+++ ")


def _trimmed(lines: list[str]) -> tuple[str, ...]:
    """Without empty lines at both ends, unless there is nothing else."""
    text = [bool(line.strip()) for line in lines]
    if not any(text):
        return ()
    return tuple(lines[text.index(True) : len(lines) - text[::-1].index(True)])


def _places(lines: Sequence[str], search: Sequence[str]) -> list[tuple[int, str]]:
    """Where `search` fits, and the indentation that it lacks there: exactly, else but for spaces at the end
    of lines, else but for how far all of it is indented.
    """
    starts = range(len(lines) - len(search) + 1)
    exact = [(n, "") for n in starts if list(lines[n : n + len(search)]) == list(search)]
    if exact:
        return exact
    wanted = [line.rstrip() for line in search]
    stripped = [line.rstrip() for line in lines]
    loose = [(n, "") for n in starts if stripped[n : n + len(search)] == wanted]
    if loose:
        return loose
    flat = textwrap.dedent("\n".join(wanted))
    first = flat.split("\n")[0]
    return [
        (n, _margin(stripped[n : n + len(search)]))
        for n in starts
        if stripped[n].lstrip() == first.lstrip()
        and textwrap.dedent("\n".join(stripped[n : n + len(search)])) == flat
    ]


def _margin(lines: Sequence[str]) -> str:
    margins = [line[: len(line) - len(line.lstrip())] for line in lines if line.strip()]
    return min(margins, key=len, default="")


def _indented(edit: Edit, margin: str) -> list[str]:
    """The replacement, moved to the margin that was found as the search was."""
    if not margin and _margin(edit.search) == "":
        return list(edit.replace)
    own = _margin(edit.search)
    if margin in ("", own):
        return list(edit.replace)
    return [margin + line.removeprefix(own) if line.strip() else line for line in edit.replace]


def _missing(lines: Sequence[str], edit: Edit) -> str:
    """The first line of the search that the file does not have at all, else that they stand elsewhere."""
    known = {line.strip() for line in lines}
    for line in edit.search:
        if line.strip() not in known:
            return f"it has no line {line.strip()[:_SHOWN]!r}"
    return f"the lines from {edit.search[0].strip()[:_SHOWN]!r} on do not stand there in this order"
