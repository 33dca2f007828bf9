"""Runs of lines that are better not cut, and how to cut those that are too long.

Paragraphs, code fences and tables (in HTML, too) are blocks. A long table is cut between rows and its header
repeated; long code and lists before a line that begins something; a sentence that introduces a block goes
with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

CHUNK_CHARACTERS = 1600
_LEAD_CHARACTERS = 300  # longer text introduces nothing, it says something itself
_FENCE = re.compile(r"\s*(```+|~~~+)")
_TABLE_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
_RAW_TABLE = re.compile(r"\s*<table\b", re.IGNORECASE)
_RAW_TABLE_TAG = re.compile(r"<(/?)table\b", re.IGNORECASE)
_RAW_ROW = re.compile(r"(?=<tr\b)", re.IGNORECASE)
_RAW_HEADER_LINES = 60  # what has not ended by then is no header
_BOLD = re.compile(r"\s*(\*\*|__).+\1")
_ITEM = re.compile(r"\s*(?:[-*+•]|\(?(?:\d+|[a-zA-Z]|#)[.)])\s")
_CLOSER = re.compile(r"\s*(?:[}\])]|else\b|elif\b|except\b|finally\b|catch\b|```|~~~|#endif|#else)")


@dataclass(frozen=True)
class Span:
    """Lines `start`..`end`, 1-based and inclusive; not `whole`: a part of one line that is too long.

    The text of a table's later parts begins with its header, which stands further up.
    """

    start: int
    end: int
    text: str
    whole: bool = True


def cut(lines: Sequence[str], first: int) -> Iterator[Span]:
    """Consecutive spans of at most CHUNK_CHARACTERS; `first` is the number of the first line."""
    yield from _pack([piece for block in blocks(lines, first) for piece in split(block, CHUNK_CHARACTERS)])


def blocks(lines: Sequence[str], first: int) -> Iterator[Span]:
    """The blocks without the blank lines around."""
    start: int | None = None
    fence = ""
    open_tables = 0
    closing = max((i for i, line in enumerate(lines) if "</table" in line.lower()), default=-1)
    for offset, line in enumerate([*lines, ""]):
        mark = _FENCE.match(line)
        if open_tables or (not fence and offset <= closing and _RAW_TABLE.match(line)):
            if not open_tables and start is not None:
                yield Span(first + start, first + offset - 1, "\n".join(lines[start:offset]))
            start = offset if not open_tables else start
            open_tables += sum(-1 if tag[1] else 1 for tag in _RAW_TABLE_TAG.finditer(line))
            if start is not None and (open_tables <= 0 or offset == closing):
                open_tables = 0
                yield Span(first + start, first + offset, "\n".join(lines[start : offset + 1]))
                start = None
            continue
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip(" `~"):
                fence = ""
            if offset < len(lines):
                continue
        elif mark:
            fence = mark[1]
        if line.strip() or (mark and fence):
            start = offset if start is None else start
        elif start is not None:
            yield Span(first + start, first + offset - 1, "\n".join(lines[start:offset]))
            start = None


def table_header(lines: Sequence[str]) -> tuple[int, str]:
    """The header of a table in Markdown or HTML that begins the lines: how many lines it fills, and its text.
    (0, "") for what is no table, or has no header.
    """
    if len(lines) > 2 and "|" in lines[0] and "|" in lines[1] and _TABLE_RULE.match(lines[1]):
        return 2, "\n".join(lines[:2])
    if not lines or not _RAW_TABLE.match(lines[0]):
        return 0, ""
    text = "\n".join(lines[:_RAW_HEADER_LINES])
    lower = text.lower()
    end = lower.find("</thead>")
    if end >= 0:
        end += len("</thead>")
    else:
        rows = [match.start() for match in _RAW_ROW.finditer(text)]
        end = rows[1] if len(rows) > 1 else -1
        if end < 0 or "<th" not in lower[:end] or "<td" in lower[:end]:
            return 0, ""
    header = text[:end].rstrip()
    rest = text[len(header) :].partition("\n")[0].strip()
    return header.count("\n") + (not rest), header


def header_above(lines: Sequence[str]) -> list[range]:
    """For each line the indices of the lines that name its columns; empty where it is no row of a table."""
    found: list[range] = []
    raw = False
    current = range(0)
    for i, line in enumerate(lines):
        if raw and "</table" in lines[i - 1].lower():
            raw, current = False, range(0)
        if not raw and "|" not in line:
            current = range(0)
        if not current and not raw:
            raw = _RAW_TABLE.match(line) is not None
            count, _ = table_header(lines[i:] if raw else lines[i : i + 3])
            current = range(i, i + (count if raw else min(count, 1)))
        found.append(current if i >= current.stop else range(0))
    return found


def split(block: Span, limit: int) -> Iterator[Span]:
    """A block that fits stays whole; a longer one is cut between lines, an overlong line between words."""
    if len(block.text) <= limit:
        yield block
        return
    lines = block.text.split("\n")
    count, header = table_header(lines)
    if len(header) > limit // 2:
        count, header = 0, ""
    raw = _RAW_TABLE.match(lines[0]) is not None
    margin = min((_indent(line) for line in lines if line.strip() and not _FENCE.match(line)), default=0)
    at = 0
    while at < len(lines):
        lead = header + "\n" if header and at >= max(count, 1) else ""
        room = limit - len(lead)
        if len(lines[at]) > room:
            parts = _row_parts(lines[at], limit - len(header) - 1) if raw else split_words(lines[at], limit)
            for number, part in enumerate(parts):
                led = raw and header and (at or number)
                text = f"{header}\n{part}" if led else part
                yield Span(block.start + at, block.start + at, text, whole=False)
            at += 1
            continue
        end = _end(lines, at, room, margin)
        yield Span(block.start + at, block.start + end - 1, lead + "\n".join(lines[at:end]))
        at = end


def _row_parts(line: str, limit: int) -> Iterator[str]:
    """A line of an HTML table, cut before rows where they fit."""
    pending = ""
    for row in _RAW_ROW.split(line):
        if pending and len(pending) + len(row) > limit:
            yield from split_words(pending, limit)
            pending = ""
        pending += row
    yield from split_words(pending, limit)


def _end(lines: Sequence[str], at: int, room: int, margin: int) -> int:
    """Where to cut: the last of the best places in the second half of what fits."""
    sizes = []
    size = -1
    for line in lines[at:]:
        size += len(line) + 1
        if size > room:
            break
        sizes.append(size)
    fits = at + len(sizes)
    if fits == len(lines):
        return fits
    later = [at + n + 1 for n, size in enumerate(sizes) if size >= room // 2]
    return max(later or [fits], key=lambda end: (_quality(lines, end, margin), end))


def _quality(lines: Sequence[str], end: int, margin: int) -> int:
    """How well the line at `end` begins something."""
    if end >= len(lines) or not lines[end].strip() or _CLOSER.match(lines[end]):
        return 0
    if _RAW_ROW.match(lines[end].lstrip()):
        return 4
    outermost = _indent(lines[end]) == margin
    after_blank = not lines[end - 1].strip()
    return 3 if outermost and after_blank else 2 if outermost or _ITEM.match(lines[end]) else int(after_blank)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def split_words(text: str, limit: int) -> Iterator[str]:
    """Pieces of at most `limit` characters, cut at a blank where there is one in the second half."""
    while len(text) > limit:
        at = text.rfind(" ", limit // 2, limit)
        at = limit if at < 0 else at
        yield text[:at]
        text = text[at:].lstrip(" ")
    if text.strip():
        yield text


def _pack(pieces: Sequence[Span]) -> Iterator[Span]:
    """Join neighbouring blocks while they fit."""
    group: Span | None = None  # what is joined so far, but for `last`
    last: Span | None = None
    for piece in pieces:
        if last is None:
            last = piece
            continue
        together = _join(group, last)
        joined = _join(together, piece)
        if joined is not None:
            group, last = together, piece
            continue
        if _introduces(last):
            if group is not None and _join(last, piece) is not None:
                yield group
                group, last = last, piece
                continue
            if group is None and piece.whole and not _is_unit(piece):
                # A heading over a long paragraph: better with its beginning than alone.
                first, *rest = split(piece, CHUNK_CHARACTERS - len(last.text) - (piece.start - last.end))
                started = _join(last, first)
                if started is not None and rest:
                    yield started
                    yield from rest[:-1]
                    last = rest[-1]
                    continue
        yield together or last
        group, last = None, piece
    if last is not None:
        yield _join(group, last) or last


def _join(before: Span | None, after: Span) -> Span | None:
    """One span, None when the two do not fit. Blank lines between them count by their number."""
    if before is None:
        return after
    gap = after.start - before.end
    text = before.text + "\n" * gap + after.text
    if before.whole and after.whole and gap >= 1 and len(text) <= CHUNK_CHARACTERS:
        return Span(before.start, after.end, text)
    return None


def _introduces(lead: Span) -> bool:
    """A sentence that ends with a colon, or a title."""
    text = lead.text.rstrip()
    if len(text) > _LEAD_CHARACTERS or not lead.whole:
        return False
    if "\n" not in text and (_BOLD.fullmatch(text) or not text.endswith((".", ";", ",", "}", "|"))):
        return True
    return text.rstrip("*_`").endswith(":")


def _is_unit(block: Span) -> bool:
    """Whether a block that fits a chunk should stay whole: code and tables."""
    marked = _FENCE.match(block.text) or _RAW_TABLE.match(block.text)
    return marked is not None or table_header(block.text.split("\n"))[0] > 0
