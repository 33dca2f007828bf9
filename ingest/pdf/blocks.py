"""Lines to blocks: paragraphs, list items, code and tables, in reading order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from ingest.pdf.lines import Line, Segment, lines_of, segments_of
from ingest.pdf.page import PageContent, Word
from ingest.pdf.regions import reading_order
from ingest.pdf.tables import Table, gap_table, ruled_tables

_NUMBERED = re.compile(r"(?:\(?\d{1,3}[.)]|\(?[a-z][.)])\s+\S")
LEADERS = re.compile(r"(?:\s*[.·…_]){4,}\s*\S{1,8}$")  # in a table of contents
_SENTENCE_END = re.compile(r"[.!?:;…]['\")\]]*$|[。！？：]$")


@dataclass
class Block:
    """`kind` is text, item, code, table or scan; `scan` has what was recognised in the page's image."""

    kind: str
    page: int
    lines: list[Line] = field(default_factory=list)
    table: Table | None = None
    scan: str = ""

    @property
    def size(self) -> float:
        return self.lines[0].size

    @property
    def bold(self) -> bool:
        return all(line.bold for line in self.lines)

    @property
    def text(self) -> str:
        return " ".join(line.text for line in self.lines)


def blocks_of(content: PageContent, page: int, dropped: set[int], *, code: bool) -> list[Block]:
    """The page's blocks. `dropped` has the ids of words that are on every page; without `code`, fonts of one
    width mean nothing, as the whole document is set in one.
    """
    tables, inside = ruled_tables(content)
    words = [w for w in content.words if id(w) not in inside and id(w) not in dropped]
    segments = segments_of([w for w in words if not w.turned])
    placed = [_stand_in(table) for table in tables]
    stand_ins = {id(s): table for s, table in zip(placed, tables, strict=True)}
    blocks: list[Block] = []
    for group in reading_order([*segments, *placed]):
        pending: list[Segment] = []
        for segment in sorted(group, key=lambda s: s.top):
            if id(segment) in stand_ins:
                blocks += _blocks_in(lines_of(pending), content, page, code)
                blocks.append(Block("table", page, table=stand_ins[id(segment)]))
                pending = []
            else:
                pending.append(segment)
        blocks += _blocks_in(lines_of(pending), content, page, code)
    turned = [w for w in words if w.turned]
    if turned:
        blocks.append(Block("text", page, lines_of(segments_of(_flat(turned)))))
    return blocks


def _stand_in(table: Table) -> Segment:
    """A segment that takes the table's place among the text."""
    text = " ".join(cell for row in table.rows[:2] for cell in row)
    word = Word(text, table.x0, table.x1, table.top, table.bottom, table.bottom, 10.0)
    return Segment([word], table.x0, table.x1, table.top, table.bottom, table.bottom, 10.0)


def _flat(turned: Sequence[Word]) -> Iterator[Word]:
    for i, w in enumerate(turned):
        yield Word(w.text, 10.0 * i, 10.0 * i + 9, 0, w.size, w.size, w.size, w.bold)


def _blocks_in(lines: list[Line], content: PageContent, page: int, code: bool) -> Iterator[Block]:
    steps = [b.baseline - a.baseline for a, b in pairwise(lines) if a.size == b.size]
    leading = median([s for s in steps if s > 0] or [12.0])
    right = max((line.x1 for line in lines), default=0.0)
    current: Block | None = None
    at = 0
    while at < len(lines):
        line = lines[at]
        is_code = code and line.mono and not line.bullet and not _in_sentence(current, lines, at, leading)
        leads = LEADERS.search(line.text) is not None
        if not is_code and not leads and len(line.segments) > 1:
            found = gap_table(_until_code(lines[at:], code), content.rules)
            if found is not None:
                if current is not None:
                    yield current
                current = None
                yield Block("table", page, table=found[0])
                at += found[1]
                continue
        if (
            current is None
            or not _continues(current, line, is_code, leading, right)
            or (current.kind == "text" and _broken(lines, at, leading))
        ):
            if current is not None:
                yield current
            item = line.bullet or leads or _NUMBERED.match(line.text)
            current = Block("code" if is_code else "item" if item else "text", page)
        current.lines.append(line)
        at += 1
    if current is not None:
        yield current


def _in_sentence(block: Block | None, lines: Sequence[Line], at: int, leading: float) -> bool:
    """Whether a line of names in a code font only continues the sentence of the line before."""
    if block is None or block.kind == "code" or (at + 1 < len(lines) and lines[at + 1].mono):
        return False
    before = block.lines[-1]
    near = lines[at].baseline - before.baseline < 1.3 * min(leading, 1.3 * before.size)
    return near and not before.mono and not _SENTENCE_END.search(before.text)


def _broken(lines: Sequence[Line], at: int, leading: float) -> bool:
    """Whether the line before `at` ends on purpose: what follows would have had room on it."""
    line, before = lines[at], lines[at - 1]
    if line.text[:1].islower():
        return False  # in the middle of a sentence
    if line.bold or line.size > 1.15 * median(x.size for x in lines):
        return False  # headings are broken by their sense
    right = max(line.x1, before.x1)
    for steps in (range(at, min(at + 3, len(lines) - 1)), range(at - 1, max(at - 4, 0), -1)):
        for i in steps:
            other = lines[i + 1] if i >= at else lines[i - 1]
            if abs(other.baseline - lines[i].baseline) > 1.35 * leading:
                break
            right = max(right, other.x1)
    first = line.words[0]
    return before.x1 + 0.5 * line.size + (first.x1 - first.x0) < right - 0.5 * line.size


def _until_code(lines: Sequence[Line], code: bool) -> Sequence[Line]:
    ends = (i for i, x in enumerate(lines) if (code and x.mono) or LEADERS.search(x.text))
    return lines[: next(ends, len(lines))]


def _continues(block: Block, line: Line, is_code: bool, leading: float, right: float) -> bool:
    before = block.lines[-1]
    step = line.baseline - before.baseline
    if (block.kind == "code") != is_code:
        return False
    if is_code:
        return 0 < step < 4 * max(leading, line.size)
    if line.bullet or _NUMBERED.match(line.text) or LEADERS.search(line.text):
        return False
    if step > max(1.35 * leading, 1.5 * max(line.size, before.size)) and step > 1.35 * line.size:
        return False
    if abs(line.size - before.size) > 0.6 or line.bold != before.bold:
        return False
    if block.kind == "item":
        return line.x0 > block.lines[0].x0 + 2 or step < 1.25 * leading
    short = before.x1 < right - 0.2 * (right - before.x0)
    ended = _SENTENCE_END.search(before.text) is not None
    indented = line.x0 > before.x0 + 0.8 * line.size and line.x0 < before.x0 + 4 * line.size
    return not (short and ended) and not (indented and ended)


def code_text(lines: Sequence[Line]) -> list[str]:
    """Lines of code with their indentation and blank lines, from where their words stand."""
    letters = [w for line in lines for w in line.words if len(w.text) > 1]
    width = median([(w.x1 - w.x0) / len(w.text) for w in letters] or [lines[0].size * 0.6]) or 6.0
    left = min(line.x0 for line in lines)
    steps = [b.baseline - a.baseline for a, b in pairwise(lines) if b.baseline > a.baseline]
    leading = median(steps or [12.0])  # so that listings set in double space do not double
    result: list[str] = []
    before: Line | None = None
    for line in lines:
        if before is not None and line.baseline > before.baseline:
            result += [""] * (round((line.baseline - before.baseline) / leading) - 1)
        text = ""
        for word in line.words:
            column = round((word.x0 - left) / width)
            text += " " * max(column - len(text), 1 if text and word.spaced else 0) + word.text
        result.append(text)
        before = line
    return result
