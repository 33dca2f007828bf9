"""Grid, simple, list and CSV tables become Markdown tables: one line a row, cells kept whole."""

from __future__ import annotations

import csv
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ingest.loaders.rst.lines import Line, dedent, strip_blank

GRID_BORDER = re.compile(r"^\+(?:[-=]+\+)+$")
SIMPLE_BORDER = re.compile(r"^=+(?: +=+)+$")
_SPAN_RULE = re.compile(r"^-+(?: +-+)*$")
_MARK = re.compile(r"[*+-](?:\s+|$)")

# Renders the lines of a cell as the scanner renders any body.
Render = Callable[[Sequence[Line]], list[Line]]


@dataclass
class Row:
    """The cells of one row, each with its lines; `first`..`last` are lines of the file."""

    cells: list[list[Line]]
    first: int
    last: int


@dataclass
class Table:
    """`headers` of the rows are the header. Without any, the first row serves: Markdown has no other way."""

    rows: list[Row]
    headers: int = 0


def render(table: Table, cell: Render) -> list[Line]:
    """Markdown; rows whose cells hold code follow one another as text, under the names of their columns."""
    rows = [Row([cell(c) for c in row.cells], row.first, row.last) for row in table.rows if row.cells]
    if not rows:
        return []
    if any(_is_block(c) for row in rows for c in row.cells):
        return list(_as_text(rows, table.headers))
    head, body = rows[: max(1, table.headers)], rows[max(1, table.headers) :]
    width = max(len(row.cells) for row in rows)
    names = [
        " ".join(_flat(row.cells[i]) for row in head if i < len(row.cells)).strip() for i in range(width)
    ]
    first, last = head[0].first, head[-1].last
    rendered = [Line(_markdown(names), first, last), Line(_markdown(["---"] * width), first, last)]
    for row in body:
        cells = [_flat(c) for c in row.cells] + [""] * (width - len(row.cells))
        rendered.append(Line(_markdown(cells), row.first, row.last))
    return rendered


def _as_text(rows: Sequence[Row], headers: int) -> Iterator[Line]:
    names = [_flat(c) for c in rows[0].cells] if headers else []
    for row in rows[headers:]:
        for i, content in enumerate(row.cells):
            if not content:
                continue
            if i < len(names) and names[i]:
                yield content[0].at(f"{names[i]}:")
            yield from content
            yield content[-1].at("")


def _is_block(cell: Sequence[Line]) -> bool:
    return any(line.text.lstrip().startswith(("```", "~~~")) for line in cell)


def _flat(cell: Sequence[Line]) -> str:
    """One line; the marks of line blocks mean no more in it."""
    words = (re.sub(r"^\| ?", "", line.text.strip()) for line in cell)
    return " ".join(w for w in words if w)


def _markdown(cells: Sequence[str]) -> str:
    return "| " + " | ".join(c.replace("|", r"\|") for c in cells) + " |"


# --- the four kinds ---


def list_table(content: Sequence[Line], headers: int) -> Table | None:
    """A bullet list of bullet lists; None when it is something else."""
    rows = []
    for item in _items(content) or []:
        cells = _items(item)
        if cells is None:
            return None
        rows.append(Row([dedent(c) for c in cells], item[0].first, item[-1].last))
    return Table(rows, headers) if rows else None


def _items(lines: Sequence[Line]) -> list[list[Line]] | None:
    """The items of a bullet list, their marks replaced by blanks; None when it is no list."""
    items: list[list[Line]] = []
    for line in dedent(lines):
        mark = _MARK.match(line.text)
        if mark:
            items.append([line.at(" " * mark.end() + line.text[mark.end() :])])
        elif not items or (not line.blank and line.indent == 0):
            return None
        else:
            items[-1].append(line)
    return [strip_blank(item) or item[:1] for item in items]


def csv_table(content: Sequence[Line], header: str, headers: int, delimiter: str, place: Line) -> Table:
    """`header` is the directive's option. Raises csv.Error."""
    rows = []
    if header:
        for cells in csv.reader([header], delimiter=delimiter, skipinitialspace=True, strict=True):
            rows.append(Row([[place.at(c)] for c in cells], place.first, place.first))
    lines = strip_blank(content)
    reader = csv.reader(
        (line.text.strip() + "\n" for line in lines), delimiter=delimiter, skipinitialspace=True, strict=True
    )
    before = 0
    for cells in reader:
        used = lines[before : reader.line_num]
        before = reader.line_num
        if cells and used:
            at = used[0]
            rows.append(
                Row([[at.at(part) for part in c.split("\n")] for c in cells], at.first, used[-1].last)
            )
    return Table(rows, headers + (1 if header else 0))


def grid_end(lines: Sequence[Line], start: int) -> int:
    """The end of the grid table whose top border is at `start`; `start` when it is none."""
    indent = lines[start].indent
    end = start
    for i in range(start, len(lines)):
        text = lines[i].text.strip()
        if lines[i].blank or lines[i].indent != indent or text[0] not in "+|":
            break
        end = i + 1
    return end if end - start >= 3 and GRID_BORDER.match(lines[end - 1].text.strip()) else start


def grid_table(lines: Sequence[Line]) -> Table:
    """Cells that span columns stand in the first of them; one that spans rows is cut where others end."""
    rows: list[Row] = []
    headers = 0
    plain = dedent(lines)
    edges = sorted({i for x in plain if GRID_BORDER.match(x.text) for i, c in enumerate(x.text) if c == "+"})
    pending: list[list[Line]] = [[] for _ in edges[1:]]

    def finish() -> None:
        nonlocal pending
        used = [line for cell in pending for line in cell]
        if used:
            span = min(x.first for x in used), max(x.last for x in used)
            rows.append(Row([dedent(c) for c in pending], *span))
        pending = [[] for _ in edges[1:]]

    for line in plain:
        if line.text.startswith("+") or re.search(r"\+[-=]{2,}\+", line.text):
            finish()
            if GRID_BORDER.match(line.text) and "=" in line.text and not headers:
                headers = len(rows)
            if GRID_BORDER.match(line.text):
                continue
        column = 0
        for left, right in _cells(line.text, edges):
            text = line.text[left + 1 : right]
            column = max(column, min(bisect_right(edges, left), len(edges) - 1) - 1)
            if text.strip() and not re.fullmatch(r"[-=+]+", text.strip()):
                pending[column].append(line.at(text.rstrip()))
    finish()
    return Table(rows, headers)


def _cells(text: str, edges: Sequence[int]) -> Iterator[tuple[int, int]]:
    bars = [e for e in edges if e < len(text) and text[e] in "|+"]
    if len(bars) < 2:  # characters of double width have moved the bars
        bars = [i for i, c in enumerate(text) if c == "|"]
    yield from pairwise(bars)


def simple_end(lines: Sequence[Line], start: int) -> int:
    """The end of the simple table whose top border is at `start`; `start` when it is none."""
    indent = lines[start].indent
    borders = 0
    for i in range(start, len(lines)):
        line = lines[i]
        if not line.blank and line.indent < indent:
            return start
        if SIMPLE_BORDER.match(line.text.strip()) and line.indent == indent:
            borders += 1
            over = i + 1 >= len(lines) or lines[i + 1].blank
            if borders >= 3 or (borders == 2 and over):
                return i + 1
    return start


def simple_table(lines: Sequence[Line]) -> Table:
    """A line that leaves the first column empty continues the row above."""
    plain = dedent(lines)
    starts = [m.start() for m in re.finditer("=+", plain[0].text)]
    borders = [i for i, line in enumerate(plain) if SIMPLE_BORDER.match(line.text)]
    rows: list[Row] = []
    headers = 0
    fresh = True
    for i, line in enumerate(plain):
        if i in borders:
            if i == borders[1] and len(borders) > 2:
                headers = len(rows)
            fresh = True
            continue
        if line.blank or _SPAN_RULE.match(line.text):
            fresh = True
            continue
        cells = [line.text[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]
        if cells[0].strip() or not rows or (fresh and i - 1 in borders):
            rows.append(Row([[line.at(c.strip())] for c in cells], line.first, line.last))
        else:
            for own, c in zip(rows[-1].cells, cells, strict=True):
                own.append(line.at(c.strip()))
            rows[-1].last = line.last
        fresh = False
    return Table(rows, headers)
