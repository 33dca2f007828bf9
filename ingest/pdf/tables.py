"""Tables: those drawn with lines from the lines, those without from the gaps that all rows share."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from ingest.pdf.drawing import Rule
from ingest.pdf.lines import Line, join, join_lines, lines_of, segments_of
from ingest.pdf.page import PageContent, Word

_SNAP = 3.0  # points within which lines meet
_MAX_CROSSINGS = 300_000
_MIN_ROWS = 3  # of a table without lines


@dataclass
class Table:
    """`rows` begins with the header, which takes up `head` of them. `edges` are the x of its columns."""

    x0: float
    x1: float
    top: float
    bottom: float
    rows: list[list[str]]
    edges: list[float]
    head: int = 1


# --- drawn with lines ---


def ruled_tables(content: PageContent) -> tuple[list[Table], set[int]]:
    """Tables between lines, and the ids of the words in them."""
    tables: list[Table] = []
    inside: set[int] = set()
    for grid in _grids(content.rules):
        words = [w for w in content.words if grid.holds(w) and id(w) not in inside]
        rows = grid.texts(words)
        filled = sum(bool(cell) for row in rows for cell in row)
        full = [row for row in rows if sum(map(bool, row)) > 1]
        complete = len(rows) == 1 and all(rows[0])  # a header at the end of a page, a row of boxes
        if not complete and (len(full) < 2 or filled < 0.3 * len(rows) * len(rows[0])):
            continue
        inside |= {id(w) for w in words}
        tables.append(
            Table(grid.xs[0], grid.xs[-1], grid.ys[0], grid.ys[-1], _tidy(rows), grid.xs, grid.head_rows())
        )
    return tables, inside


def _grids(rules: Sequence[Rule]) -> Iterator[_Grid]:
    """Grids of drawn lines, then those that coloured grounds make where there are none."""
    found: list[_Grid] = []
    for faint in (False, True):
        if faint and not any(rule.faint for rule in rules):
            return
        usable = [r for r in rules if (faint or not r.faint) and not any(grid.has(r) for grid in found)]
        for across, down in _connected(usable):
            grid = _Grid.of(across, down)
            if grid is not None:
                found.append(grid)
                yield grid


def _connected(rules: Sequence[Rule]) -> list[tuple[list[Rule], list[Rule]]]:
    """Groups of crossing lines: those across, those down."""
    across, down = _merged([r for r in rules if r.across]), _merged([r for r in rules if not r.across])
    if not across or not down or len(across) * len(down) > _MAX_CROSSINGS:
        return []
    group = list(range(len(across) + len(down)))

    def root(i: int) -> int:
        while group[i] != i:
            group[i] = group[group[i]]
            i = group[i]
        return i

    for j, v in enumerate(down, start=len(across)):
        for i, h in enumerate(across):
            if h.start - _SNAP <= v.at <= h.end + _SNAP and v.start - _SNAP <= h.at <= v.end + _SNAP:
                group[root(j)] = root(i)
    found: dict[int, tuple[list[Rule], list[Rule]]] = {}
    for i, rule in enumerate([*across, *down]):
        found.setdefault(root(i), ([], []))[0 if rule.across else 1].append(rule)
    return [(a, d) for a, d in found.values() if len(a) > 1 and len(d) > 1]


def _merged(rules: Sequence[Rule]) -> list[Rule]:
    """Lines that continue or cover each other as one."""
    merged: list[Rule] = []
    for rule in sorted(rules, key=lambda r: (round(r.at), r.start)):
        last = merged[-1] if merged else None
        if last is not None and abs(last.at - rule.at) < 1.5 and rule.start <= last.end + _SNAP:
            last.end = max(last.end, rule.end)
        else:
            merged.append(Rule(rule.across, rule.at, rule.start, rule.end))
    return merged


def _positions(rules: Sequence[Rule]) -> list[float]:
    found: list[float] = []
    for at in sorted(r.at for r in rules):
        if not found or at - found[-1] > _SNAP:
            found.append(at)
    return found


@dataclass
class _Grid:
    """Rows between `ys`, columns between `xs`; `owner` maps a place to the first one of its cell."""

    xs: list[float]
    ys: list[float]
    owner: dict[tuple[int, int], tuple[int, int]]

    @classmethod
    def of(cls, across: Sequence[Rule], down: Sequence[Rule]) -> _Grid | None:
        xs, ys = _positions(down), _positions(across)
        left, right = min(r.start for r in across), max(r.end for r in across)
        # Many tables have no lines at their sides.
        xs = [left] * (xs[0] - left > 8) + xs + [right] * (right - xs[-1] > 8)
        top, bottom = min(r.start for r in down), max(r.end for r in down)
        ys = [top] * (ys[0] - top > 8) + ys + [bottom] * (bottom - ys[-1] > 8)
        if len(xs) < 3 or len(ys) < 2:
            return None
        owner: dict[tuple[int, int], tuple[int, int]] = {}
        for i in range(len(ys) - 1):
            for j in range(len(xs) - 1):
                above = i > 0 and not _drawn(across, ys[i], xs[j], xs[j + 1])
                beside = j > 0 and not _drawn(down, xs[j], ys[i], ys[i + 1])
                owner[i, j] = owner[i, j - 1] if beside else owner[i - 1, j] if above else (i, j)
        return cls(xs, ys, owner)

    def has(self, rule: Rule) -> bool:
        middle = (rule.start + rule.end) / 2
        x, y = (middle, rule.at) if rule.across else (rule.at, middle)
        return self.xs[0] - 2 <= x <= self.xs[-1] + 2 and self.ys[0] - 2 <= y <= self.ys[-1] + 2

    def holds(self, word: Word) -> bool:
        x, y = (word.x0 + word.x1) / 2, (word.top + word.bottom) / 2
        return self.xs[0] - 1 <= x <= self.xs[-1] + 1 and self.ys[0] - 1 <= y <= self.ys[-1] + 1

    def texts(self, words: Sequence[Word]) -> list[list[str]]:
        """The text of every place. A cell over several places has its text in each, one as wide as the table
        only in the first.
        """
        cells: dict[tuple[int, int], list[Word]] = {}
        columns, rows = len(self.xs) - 1, len(self.ys) - 1
        for word in words:
            j = min(columns - 1, max(0, bisect_right(self.xs, (word.x0 + word.x1) / 2) - 1))
            i = min(rows - 1, max(0, bisect_right(self.ys, (word.top + word.bottom) / 2) - 1))
            cells.setdefault(self.owner[i, j], []).append(word)
        lines = {at: [line.text for line in cell_lines(inside)] for at, inside in cells.items()}
        split = self._unruled_rows(cells) if rows <= 2 else None
        if split is not None:
            return split
        texts = {at: join_lines(found) for at, found in lines.items()}
        result = []
        for i in range(rows):
            wide = len({self.owner[i, j] for j in range(columns)}) == 1
            row = [texts.get(self.owner[i, j], "") for j in range(columns)]
            result.append([row[0], *[""] * (columns - 1)] if wide else row)
        return result

    def _unruled_rows(self, cells: dict[tuple[int, int], list[Word]]) -> list[list[str]] | None:
        """Rows of a body that is one box per column: a row begins where the first column has a line."""
        last = len(self.ys) - 2
        columns = range(len(self.xs) - 1)
        body = [cell_lines(cells.get(self.owner[last, j], [])) for j in columns]
        starts = [line.top - 2 for line in body[0]]
        if len(starts) < 3 or len({self.owner[last, j] for j in columns}) < len(columns):
            return None
        rows = [
            [join_lines([x.text for x in cell_lines(cells.get((i, j), []))]) for j in columns]
            for i in range(last)
        ]
        for number, start in enumerate(starts):
            end = starts[number + 1] if number + 1 < len(starts) else float("inf")
            begin = start if number else float("-inf")
            rows.append([join_lines([x.text for x in column if begin <= x.top < end]) for column in body])
        return rows

    def head_rows(self) -> int:
        """Two where cells of the first row span columns that the second names and all others reach down to
        it, else one.
        """
        if len(self.ys) < 4:
            return 1
        first = [self.owner[0, j] for j in range(len(self.xs) - 1)]
        second = [self.owner[1, j] for j in range(len(self.xs) - 1)]
        named = all(a == b or first.count(a) > 1 for a, b in zip(first, second, strict=True))
        return 2 if named and first != second and 1 < len(set(first)) < len(set(second)) else 1


def _drawn(rules: Sequence[Rule], at: float, start: float, end: float) -> bool:
    """Whether lines at this position cover most of a cell's side."""
    covered = sum(max(0.0, min(end, r.end) - max(start, r.start)) for r in rules if abs(r.at - at) <= _SNAP)
    return covered > 0.5 * (end - start)


def cell_lines(words: Sequence[Word]) -> list[Line]:
    """The lines of a cell; words that are turned are one line of their own."""
    lines = lines_of(segments_of([w for w in words if not w.turned]))
    turned = [w for w in words if w.turned]
    if turned:
        lines += lines_of(segments_of([_upright(turned)]))
    return lines


def _upright(words: Sequence[Word]) -> Word:
    text = " ".join(w.text for w in words)
    first = words[0]
    bottom = max(w.bottom for w in words)
    return Word(text, first.x0, first.x1, first.top, bottom, bottom, first.size, first.bold)


def _tidy(rows: list[list[str]]) -> list[list[str]]:
    """Without empty rows, and columns that are empty or repeat the one before throughout."""
    rows = [row for row in rows if any(row)]
    columns = list(zip(*rows, strict=True))
    kept = [c for i, c in enumerate(columns) if any(c) and (i == 0 or c != columns[i - 1])]
    return [list(row) for row in zip(*kept, strict=True)]


# --- without lines ---


def gap_table(lines: Sequence[Line], rules: Sequence[Rule]) -> tuple[Table, int] | None:
    """A table that begins with the first of `lines`, and how many of them it takes up.

    Its rows are lines of several segments, all clear of the same gaps; a line of one segment inside a column
    continues a cell.
    """
    columns = [(s.x0, s.x1) for s in lines[0].segments]
    if len(columns) < 2:
        return None
    taken = 1
    for at, line in enumerate(lines[1:], start=1):
        step = line.baseline - lines[at - 1].baseline
        merged = _merged_columns(columns, [(s.x0, s.x1) for s in line.segments], line.size)
        if len(line.segments) == 1:
            first = bisect_right([start for start, _ in columns], line.x0 + 1) <= 1
            followed = at + 1 < len(lines) and len(lines[at + 1].segments) > 1
            near = step < (1.7 if first else 2.6) * line.size  # a paragraph begins in the first column
            if len(merged) < len(columns) or not near or (first and not followed):
                break
        elif step > 3.2 * line.size or len(merged) < max(2, len(columns) - 1):
            break
        columns = merged
        taken += 1
    found = lines[:taken]
    if sum(len(line.segments) > 1 for line in found) < _MIN_ROWS:
        return None
    rows = _gap_rows(found, columns, rules)
    if sum(sum(map(bool, row)) > 1 for row in rows) < _MIN_ROWS:
        return None
    edges = [c[0] for c in columns] + [columns[-1][1]]
    return Table(columns[0][0], columns[-1][1], found[0].top, found[-1].bottom, rows, edges), taken


def _merged_columns(
    columns: Sequence[tuple[float, float]], more: Sequence[tuple[float, float]], size: float
) -> list[tuple[float, float]]:
    """The columns wide enough for further cells; those that a cell bridges become one."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted([*columns, *more]):
        if merged and start < merged[-1][1] + 0.4 * size:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _gap_rows(
    lines: Sequence[Line], columns: Sequence[tuple[float, float]], rules: Sequence[Rule]
) -> list[list[str]]:
    starts = [start for start, _ in columns]
    cells = []
    for line in lines:
        row = [""] * len(columns)
        for segment in line.segments:
            column = max(0, bisect_right(starts, segment.x0 + 1) - 1)
            row[column] = f"{row[column]} {join(segment.words)}".strip()
        cells.append(row)
    begins = _row_starts(lines, [bool(row[0]) for row in cells], rules)
    ends = [*begins[1:], len(cells)]
    return [
        [
            join_lines([row[column] for row in cells[begin:end] if row[column]])
            for column in range(len(columns))
        ]
        for begin, end in zip(begins, ends, strict=True)
    ]


def _row_starts(lines: Sequence[Line], named: Sequence[bool], rules: Sequence[Rule]) -> list[int]:
    """Where rows begin: below the lines drawn between them; else after wider steps, if these part the entries
    of the first column; else where the first column has an entry.
    """
    steps = [0.0] + [b.baseline - a.baseline for a, b in pairwise(lines)]
    drawn = [r.at for r in rules if r.across and not r.faint and lines[0].top < r.at < lines[-1].bottom]
    if len(drawn) > 2:
        parted = [any(a.baseline < at < b.baseline for at in drawn) for a, b in pairwise(lines)]
        return [0] + [i for i, part in enumerate(parted, start=1) if part]
    wide = 1.25 * median(steps[1:] or [0.0])
    groups = [0] + [i for i, step in enumerate(steps) if i and step > wide]
    if all(sum(named[a:b]) == 1 for a, b in pairwise([*groups, len(lines)])):
        return groups
    return [0] + [i for i in range(1, len(lines)) if named[i] or steps[i] > 1.7 * lines[i].size]
