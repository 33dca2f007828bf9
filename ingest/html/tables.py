"""Tables as grids: spans are filled in, so that every row can be understood by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ingest.html.tree import Element

_MAX_COLUMNS = 40  # that a span may reach; cells of their own may be more
_REPEATED_CHARACTERS = 300
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}


@dataclass(frozen=True)
class Grid:
    """Cell texts; every row has as many as the header. A header of empty texts: the table has none."""

    header: list[str]
    rows: list[list[str]]


def rows_of(table: Element) -> Iterator[Element]:
    """The table's own rows, not those of tables in its cells."""
    for child in table.elements():
        if child.tag == "tr":
            yield child
        elif child.tag in ("thead", "tbody", "tfoot"):
            yield from (row for row in child.elements() if row.tag == "tr")


def cells_of(row: Element) -> list[Element]:
    return [cell for cell in row.elements() if cell.tag in ("td", "th")]


def is_layout(table: Element) -> bool:
    """Whether it only arranges blocks on the page: headings, further tables, or a single row or column."""
    if table.attributes.get("role") in ("presentation", "none"):
        return True
    inner = {e.tag for e in table.walk() if e is not table}
    if inner & _HEADINGS or "table" in inner:
        return True
    rows = [cells_of(row) for row in rows_of(table)]
    return max(map(len, rows), default=0) < 2 or (len(rows) < 2 and "th" not in inner)


def code_cell(table: Element) -> Element | None:
    """The code of a listing that is a table because of its line numbers."""
    rows = [cells_of(row) for row in rows_of(table)]
    if len(rows) != 1 or not any(e.tag == "pre" for e in table.walk()):
        return None
    full = [cell for cell in rows[0] if (text := "".join(cell.text().split())) and not text.isdigit()]
    return full[0] if len(full) == 1 and len(rows[0]) > 1 else None


def numbered_lines(table: Element) -> list[str] | None:
    """The lines of a listing that has a row for each: its number (or nothing), then its text."""
    names = " ".join(table.classes + [c for e in table.within() for c in e.classes][:6]).lower()
    if not re.search("highlight|code|blob", names) or any(e.tag == "th" for e in table.walk()):
        return None
    rows = [cells_of(row) for row in rows_of(table)]
    if not rows or any(len(c) != 2 or not (c[0].text().strip() or "0").isdigit() for c in rows):
        return None
    return [cells[1].text().strip("\n").rstrip() for cells in rows]


def grid_of(table: Element, text: Callable[[Element], str]) -> Grid:
    """The grid of a data table. A short text over several rows or columns is repeated in each, so that no row
    depends on another; one as wide as the table stands once.
    """
    rows: list[list[str]] = []
    heads: list[bool] = []
    hanging: dict[int, tuple[int, str]] = {}  # column -> rows that a cell above still covers, its text
    for row in rows_of(table):
        cells = cells_of(row)
        line = {column: repeated for column, (_, repeated) in hanging.items()}
        opened: dict[int, tuple[int, str]] = {}
        alone = len(cells) == 1 and not hanging
        column = 0
        for cell in cells:
            while column in hanging:
                column += 1
            content = text(cell)
            again = content if len(content) <= _REPEATED_CHARACTERS and not alone else ""
            height = _span(cell, "rowspan")
            for offset in range(min(_span(cell, "colspan"), max(1, _MAX_COLUMNS - column))):
                line[column] = again if offset else content
                if height > 1:
                    opened[column] = (height - 1, again)
                column += 1
        hanging = {c: (left - 1, t) for c, (left, t) in hanging.items() if left > 1} | opened
        if cells:
            rows.append([line.get(i, "") for i in range(max(line) + 1)])
            heads.append(_is_head(row, cells))
    rows = _without_idle_columns(rows)
    first = next((i for i, head in enumerate(heads) if not head), len(heads))
    first = min(1, len(rows)) if first == len(rows) else first
    width = len(rows[0]) if rows else 0
    header = [_joined([row[i] for row in rows[:first]]) for i in range(width)]
    return Grid(header, [row for row in rows[first:] if any(row)])


def _without_idle_columns(rows: list[list[str]]) -> list[list[str]]:
    """Rows of one length, without columns that are empty or the same as the one before."""
    width = max(map(len, rows), default=0)
    columns = [tuple(row[i] if i < len(row) else "" for row in rows) for i in range(width)]
    kept = [c for i, c in enumerate(columns) if any(c) and (i == 0 or c != columns[i - 1])]
    return [[column[i] for column in kept] for i in range(len(rows))]


def _span(cell: Element, name: str) -> int:
    value = (cell.attributes.get(name) or "1").strip()
    if not value.isdecimal():
        return 1
    number = int(value[:6])
    return number or (1 if name == "colspan" else 1_000_000)  # 0: to the end of the table


def _is_head(row: Element, cells: list[Element]) -> bool:
    if row.parent is not None and row.parent.tag == "thead":
        return True
    full = [cell for cell in cells if cell.size]
    return bool(full) and all(cell.tag == "th" or _all_strong(cell) for cell in full)


def _all_strong(cell: Element) -> bool:
    """Set in bold as a whole: how headers look where `th` is not used."""
    return cell.size > 0 and sum(e.size for e in cell.walk() if e.tag in ("b", "strong")) >= cell.size


def _joined(texts: list[str]) -> str:
    """Header rows above each other as one, without what a span repeats."""
    return " / ".join(dict.fromkeys(text for text in texts if text))
