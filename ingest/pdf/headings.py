"""Headings across a document: from its outline, from sizes and weights, from numbers."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ingest.pdf.blocks import LEADERS, Block
from ingest.pdf.lines import join_lines

_NUMBER = re.compile(r"((?:\d{1,3}|[A-Z])(?:\.\d{1,3})*)\.?\s+(?=[^\W\d_])")
_CHAPTER = re.compile(r"(?:chapter|part|appendix|annex|kapitel)\s+(?:\d+|[A-Z]|[IVX]+)\b", re.IGNORECASE)
_CAPTION = re.compile(
    r"(?:table|fig(?:ure)?\.?|listing|example|algorithm|equation)\s*[\dA-Z]+[-.:\d]*", re.IGNORECASE
)
_LABEL = re.compile(r"(?:note|warning|caution|important|tip|danger|attention|hint)s?\W*", re.IGNORECASE)
_MAX_LETTERS = 160
_LARGER = 1.12
_BOLD_SHARE = 0.4  # of all blocks: where so many are bold, bold means nothing


@dataclass(frozen=True)
class OutlineEntry:
    """A bookmark: its depth, from 1, and the page it leads to, from 1 (0: none)."""

    title: str
    depth: int
    page: int


def body_style(blocks: Iterable[Block]) -> tuple[float, bool]:
    """Size and weight of most letters of running text."""
    letters: Counter[tuple[float, bool]] = Counter()
    for block in blocks:
        if block.kind in ("text", "item"):
            for line in block.lines:
                letters[line.size, line.bold] += len(line.text)
    return letters.most_common(1)[0][0] if letters else (10.0, False)


def find_headings(blocks: Sequence[Block], outline: Sequence[OutlineEntry]) -> dict[int, int]:
    """The level of every block that is a heading, by its index."""
    size, bold = body_style(blocks)
    entries = _by_page(outline)
    marked = {i: d for i, block in enumerate(blocks) if (d := _outlined(block, entries))}
    plain = [i for i, b in enumerate(blocks) if b.kind in ("text", "item") and _may_be_heading(b)]
    large = {i for i in plain if blocks[i].size >= _LARGER * size}
    heavy = {i for i in plain if not bold and blocks[i].bold and blocks[i].size >= 0.95 * size} - large
    heavy = {i for i in heavy if i + 1 < len(blocks) and not _introduces(blocks[i].text)}
    if len(heavy) > _BOLD_SHARE * max(5, len(blocks)):
        heavy = {i for i in heavy if _NUMBER.match(blocks[i].text)}
    return _levels(blocks, marked, large | heavy | set(marked))


def _may_be_heading(block: Block) -> bool:
    text = block.text.strip()
    if (
        LEADERS.search(text)
        or len(block.lines) > 3
        or len(text) > _MAX_LETTERS
        or _CAPTION.match(text)
        or _LABEL.fullmatch(text)
    ):
        return False
    if block.lines[0].bullet or text.endswith((",", ";")) or (text.endswith(".") and not _NUMBER.match(text)):
        return False
    letters = sum(c.isalpha() for c in text)
    return letters >= 2 and letters >= 0.5 * len(text.replace(" ", ""))


def _introduces(text: str) -> bool:
    return text.rstrip().endswith(":") and len(text.split()) > 4


def _levels(blocks: Sequence[Block], marked: dict[int, int], headings: set[int]) -> dict[int, int]:
    """The outline's depth where it has the heading; else that of headings that look the same, else by the
    number before it, else by the order of sizes.
    """
    looks = {i: (round(2 * blocks[i].size), blocks[i].bold) for i in headings}
    known: dict[tuple[int, bool], Counter[int]] = defaultdict(Counter)
    for i, depth in marked.items():
        known[looks[i]][depth] += 1
    numbered = {i: d for i in headings if (d := _number_depth(blocks[i].text))}
    if not marked:
        largest = max((looks[i] for i in headings), default=(0, False))
        titled = int(all(looks[i] != largest for i in numbered))  # the title stands above the numbers
        for i, depth in numbered.items():
            known[looks[i]][depth + titled] += 1
        numbered = {i: depth + titled for i, depth in numbered.items()}
    else:
        numbered = {}
    order = sorted(set(looks.values()), reverse=True)
    rank: dict[tuple[int, bool], int] = {}
    for at, look in enumerate(order):
        above = rank[order[at - 1]] if at else 0
        rank[look] = known[look].most_common(1)[0][0] if look in known else min(6, above + 1)
    return {i: marked.get(i) or numbered.get(i) or rank[looks[i]] for i in sorted(headings)}


def _number_depth(text: str) -> int:
    if _CHAPTER.match(text):
        return 1
    found = _NUMBER.match(text)
    return found[1].count(".") + 1 if found else 0


def _by_page(outline: Sequence[OutlineEntry]) -> dict[int, dict[str, int]]:
    entries: dict[int, dict[str, int]] = defaultdict(dict)
    for entry in outline:
        if entry.page and (key := _key(entry.title)):
            entries[entry.page].setdefault(key, entry.depth)
    return entries


def _outlined(block: Block, entries: dict[int, dict[str, int]]) -> int:
    if block.kind not in ("text", "item", "code") or len(block.lines) > 4 or block.page not in entries:
        return 0
    return entries[block.page].get(_key(join_lines([line.text for line in block.lines])), 0)


def _key(title: str) -> str:
    """A title without its number and all that two writings of it may differ in."""
    bare = _NUMBER.sub("", _CHAPTER.sub("", title.strip(), count=1).lstrip(" .:–—-"), count=1)
    return "".join(c for c in (bare or title).casefold() if c.isalnum())
