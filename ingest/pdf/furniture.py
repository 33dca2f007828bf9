"""Running heads, footers and page numbers: what stands at the same place of many pages."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ingest.pdf.lines import Line, lines_of, segments_of
from ingest.pdf.page import PageContent

_MARGIN = 0.12  # the share of the height in which they are looked for, above and below
_NUMBER = re.compile(
    r"(?:page|p\.|seite|-|–|—|\|)?\s*(\d{1,4})\s*(?:(?:of|/|von)\s*\d{1,4})?\s*(?:-|–|—|\|)?", re.IGNORECASE
)
_MAX_LINES = 4
_SLOT_SHARE = 0.6  # of the pages: a place that holds a head whatever it says


@dataclass
class _Candidate:
    """`apart`: further from the text than its lines are from each other."""

    page: int
    line: Line
    above: bool
    outermost: bool
    apart: bool

    @property
    def key(self) -> str:
        return re.sub(r"\d+|\b[ivxlc]+\b", "#", self.line.text.lower())


def furniture(pages: Sequence[PageContent], body_size: float) -> set[int]:
    """The ids of the words that belong to the pages rather than to the text."""
    candidates = [c for number, page in enumerate(pages) for c in _candidates(number, page)]
    repeated: dict[tuple[bool, str], list[_Candidate]] = defaultdict(list)
    places: dict[tuple[bool, int], list[_Candidate]] = defaultdict(list)
    for c in candidates:
        repeated[c.above, c.key].append(c)
        if c.outermost and c.apart:
            places[c.above, round(c.line.baseline / 3)].append(c)
    dropped: set[int] = set()
    for found in repeated.values():
        if _is_repeated(found, len(pages), body_size):
            dropped |= {id(w) for c in found for w in c.line.words}
    for found in places.values():
        small = [c for c in found if c.line.size <= 1.05 * body_size and not c.line.bold]
        if len(pages) >= 5 and len({c.page for c in small}) >= _SLOT_SHARE * len(pages):
            dropped |= {id(w) for c in small for w in c.line.words}
    for c in candidates:
        number = _NUMBER.fullmatch(c.line.text.strip())
        if c.outermost and number and (int(number[1]) == c.page + 1 or len(pages) > 2):
            dropped |= {id(w) for w in c.line.words}
    return dropped


def _is_repeated(found: Sequence[_Candidate], pages: int, body_size: float) -> bool:
    on = len({c.page for c in found})
    baselines = [c.line.baseline for c in found]
    if on < (2 if pages <= 4 else 3) or max(baselines) - min(baselines) > 12:
        return False
    if max(c.line.size for c in found) > 1.2 * body_size:  # a title: of many pages, and always the same
        return on > 0.5 * pages and len({c.line.text for c in found}) == 1
    return True


def _candidates(number: int, page: PageContent) -> list[_Candidate]:
    """The lines in the margins, up to the first wide gap; without one, the outermost alone."""
    upper, lower = _MARGIN * page.height, (1 - _MARGIN) * page.height
    words = [w for w in page.words if not w.turned]
    # What is next to the margin is needed to tell how far apart the outermost lines are.
    near = [w for w in words if w.bottom < upper * 1.6 or w.top > lower - 0.6 * upper]
    lines = lines_of(segments_of(near))
    found = []
    for above in (True, False):
        inwards = lines if above else lines[::-1]
        group: list[Line] = []
        apart = False
        for at, (line, following) in enumerate(zip_longest(inwards, inwards[1:])):
            if len(group) == _MAX_LINES or not (line.bottom <= upper if above else line.top >= lower):
                break
            if _heads_columns(line, inwards[at + 1 : at + 4]):
                break
            group.append(line)
            apart = following is None or abs(following.baseline - line.baseline) > 1.8 * line.size
            if apart:
                break
        for at, line in enumerate(group if apart else group[:1]):
            found.append(_Candidate(number, line, above, at == 0, apart and len(group) == 1))
    return found


def _heads_columns(line: Line, following: Sequence[Line]) -> bool:
    """Whether it is a row of a table: what follows begins at the same places."""
    starts = [s.x0 for other in following for s in other.segments]
    return sum(any(abs(s.x0 - x) < 3 for x in starts) for s in line.segments) > 1
