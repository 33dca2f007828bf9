"""Reading order: columns are read one after the other, what spans them comes where it stands.

A gutter is a left edge at which many segments begin and that few cross. The page is cut into bands where
segments cross it; a band is read in columns if both sides hold running text, else line by line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from ingest.pdf.lines import Segment

_MIN_WIDTH = 12  # of a column, in letters of its size
_TEXT_LETTERS = 18  # a line of running text in the narrowest column has as many


def reading_order(segments: Sequence[Segment], depth: int = 0) -> list[list[Segment]]:
    """Groups of segments; within each, lines are read from top to bottom."""
    if depth > 4 or len(segments) < 6:
        return [list(segments)] if segments else []
    best: list[tuple[bool, list[Segment]]] = []
    most = 0
    for gutter in _gutters(segments):
        bands = _bands(segments, gutter)
        lines = sum(len(band) for columns, band in bands if columns)
        if lines > most:
            best, most = bands, lines
            at = gutter
    if not most:
        return [list(segments)]
    groups: list[list[Segment]] = []
    for columns, band in best:
        if columns:
            groups += reading_order([s for s in band if s.x0 < at - 1], depth + 1)
            groups += reading_order([s for s in band if s.x0 >= at - 1], depth + 1)
        else:
            groups += reading_order(band, depth + 1) if len(band) < len(segments) else [band]
    return groups


def _gutters(segments: Sequence[Segment]) -> list[float]:
    """Left edges that several segments share, but for the leftmost."""
    left, right = min(s.x0 for s in segments), max(s.x1 for s in segments)
    size = median(s.size for s in segments)
    edges = Counter(round(s.x0 / 2) for s in segments)
    shared = [2.0 * e for e, n in edges.items() if n + edges[e + 1] + edges[e - 1] >= 3]
    return [x - 2 for x in sorted(shared) if left + _MIN_WIDTH * size < x < right - _MIN_WIDTH * size / 2]


def _bands(segments: Sequence[Segment], gutter: float) -> list[tuple[bool, list[Segment]]]:
    """Bands from top to bottom, each with whether it is read in columns."""
    ordered = sorted(segments, key=lambda s: (s.top, s.x0))
    bands: list[tuple[bool, list[Segment]]] = []
    current: list[Segment] = []
    crossing: list[Segment] = []

    def close() -> None:
        nonlocal current
        if current:
            bands.append((_are_columns(current, gutter), current))
            current = []

    for segment in ordered:
        if segment.x0 < gutter - 1 and segment.x1 > gutter - 0.3 * segment.size:
            close()
            crossing.append(segment)
        else:
            if crossing:
                bands.append((False, crossing))
                crossing = []
            current.append(segment)
    close()
    if crossing:
        bands.append((False, crossing))
    merged: list[tuple[bool, list[Segment]]] = []
    for columns, band in bands:
        if merged and not columns and not merged[-1][0]:
            merged[-1] = (False, merged[-1][1] + band)
        else:
            merged.append((columns, band))
    return merged


def _are_columns(band: Sequence[Segment], gutter: float) -> bool:
    left = [s for s in band if s.x0 < gutter - 1]
    right = [s for s in band if s.x0 >= gutter - 1]
    if len(left) < 2 or not right or len(band) < 6:
        return False
    sides = [_widest(left), _widest(right)]
    letters = min(median(len(s.text) for s in side) for side in sides)
    if letters >= _TEXT_LETTERS and min(median(len(s.words) for s in side) for side in sides) >= 3:
        return len(sides[1]) >= 2 or _in_turn(left, right)
    # Short lines, as on slides: columns if they were written so, and are more than numbers.
    return min(map(len, sides)) >= 3 and letters >= 8 and _in_turn(left, right)


def _widest(side: Sequence[Segment]) -> list[Segment]:
    """The longest segment of every line: justified lines of narrow columns fall apart at wide blanks."""
    lines: dict[int, Segment] = {}
    for segment in side:
        at = round(segment.baseline / 2)
        if at not in lines or segment.x1 - segment.x0 > lines[at].x1 - lines[at].x0:
            lines[at] = segment
    return list(lines.values())


def _in_turn(left: Sequence[Segment], right: Sequence[Segment]) -> bool:
    """Whether the file writes one side as a whole before the other."""
    return max(s.order for s in left) < min(s.order for s in right)
