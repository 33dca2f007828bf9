"""Words to segments and lines: text that stands side by side on one baseline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ingest.pdf.page import Word

# A blank in justified text is narrower than this share of the size; what is wider separates columns or cells.
_GAP = 0.95
_BULLET = re.compile(r"[•‣▪▫●○■□◦⁃∙·\uf0a7-\uf0ff➢➤✓►▶–—*-]$")
_LABEL = re.compile(_BULLET.pattern[:-1] + r"|\(?(?:\d{1,3}|[a-z]|[ivx]+)[.)]")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")


@dataclass
class Segment:
    """Words without a wide gap between them."""

    words: list[Word]
    x0: float
    x1: float
    top: float
    bottom: float
    baseline: float
    size: float
    order: int = 0  # where its first word comes in the content stream

    @cached_property
    def text(self) -> str:
        return join(self.words)

    def take(self, other: Segment) -> None:
        """Continue with a segment to the right."""
        self.words += other.words
        self.x0, self.x1 = min(self.x0, other.x0), max(self.x1, other.x1)
        self.top, self.bottom = min(self.top, other.top), max(self.bottom, other.bottom)
        self.order = min(self.order, other.order)
        if other.size > self.size + 0.1:
            self.size, self.baseline = other.size, other.baseline
        self.__dict__.pop("text", None)


@dataclass
class Line:
    """Segments on one baseline, from left to right."""

    segments: list[Segment] = field(default_factory=list)

    @cached_property
    def words(self) -> list[Word]:
        return [word for segment in self.segments for word in segment.words]

    @cached_property
    def text(self) -> str:
        return " ".join(segment.text for segment in self.segments)

    @cached_property
    def x0(self) -> float:
        return min(s.x0 for s in self.segments)

    @cached_property
    def x1(self) -> float:
        return max(s.x1 for s in self.segments)

    @cached_property
    def top(self) -> float:
        return min(s.top for s in self.segments)

    @cached_property
    def bottom(self) -> float:
        return max(s.bottom for s in self.segments)

    @cached_property
    def baseline(self) -> float:
        return max(self.segments, key=lambda s: s.size).baseline

    @cached_property
    def size(self) -> float:
        """The size of most of its letters."""
        return _majority([(w.size, len(w.text)) for w in self.words])

    @cached_property
    def bold(self) -> bool:
        return all(w.bold for w in self.words if any(c.isalnum() for c in w.text))

    @cached_property
    def mono(self) -> bool:
        """Whether it is set in a font of one width, but for a stray sign."""
        letters = sum(len(w.text) for w in self.words)
        return sum(len(w.text) for w in self.words if w.mono) >= 0.85 * letters

    @cached_property
    def bullet(self) -> bool:
        return len(self.words) > 1 and _BULLET.match(self.words[0].text) is not None


def _majority(weights: Sequence[tuple[float, int]]) -> float:
    total: dict[float, int] = {}
    for value, weight in weights:
        total[value] = total.get(value, 0) + weight
    return max(total, key=lambda value: (total[value], value))


def join(words: Iterable[Word]) -> str:
    """The text of words that follow each other on a line."""
    parts: list[str] = []
    before: Word | None = None
    for word in words:
        if before is not None and (word.spaced or abs(word.x0 - before.x1) > 0.3 * word.size):
            parts.append(" ")
        elif before is not None and _raised(before, word):
            parts.append("^")
        parts.append(word.text)
        before = word
    return "".join(parts)


def _raised(before: Word, word: Word) -> bool:
    """A power or the mark of a note: without a sign, 10 to the 6th would read 106."""
    raised = before.baseline - word.baseline
    return (
        word.size < 0.85 * before.size
        and 0.2 * before.size < raised < 0.8 * before.size
        and word.text.isalnum()
    )


def join_lines(texts: Sequence[str], known: frozenset[str] = frozenset()) -> str:
    """Lines of a paragraph as one. A hyphen at a line's end goes, unless `known` has the word with it."""
    result = ""
    for text in texts:
        if not result:
            result = text
            continue
        tail = re.search(r"([^\W\d_]+)-$", result)
        head = re.match(r"[^\W\d_]+", text)
        if tail and head and head[0][0].islower():
            hyphenated = f"{tail[1]}-{head[0]}".lower()
            result = result + text if hyphenated in known else result[:-1] + text
        elif (_CJK.match(result[-1]) and _CJK.match(text[0])) or re.search(r"[\w/]-$|\w_$", result):
            result += text
        else:
            result += " " + text
    return result


def segments_of(words: Iterable[Word]) -> list[Segment]:
    """Join words in the order of the stream first, then what turns out to be side by side."""
    found: list[Segment] = []
    for order, word in enumerate(words):
        if not _append(found[-1] if found else None, word):
            found.append(
                Segment([word], word.x0, word.x1, word.top, word.bottom, word.baseline, word.size, order)
            )
    found.sort(key=lambda s: (round(s.baseline), s.x0))
    joined: list[Segment] = []
    for segment in found:
        for before in reversed(joined[-6:]):
            size = max(before.size, segment.size)
            # Signs of an index or a power stand off the baseline, but within the line.
            level = (
                abs(before.baseline - segment.baseline)
                < (0.2 if segment.size > 0.85 * before.size else 0.6) * size
            )
            if level and -0.3 * size <= segment.x0 - before.x1 <= _GAP * size:
                before.take(segment)
                break
        else:
            joined.append(segment)
    return joined


def _append(segment: Segment | None, word: Word) -> bool:
    if segment is None:
        return False
    size = max(segment.size, word.size)
    shift = abs(segment.baseline - word.baseline)
    small = min(segment.size, word.size) < 0.85 * size
    if shift > (0.55 if small else 0.2) * size or not -0.3 * size <= word.x0 - segment.x1 <= _GAP * size:
        return False
    segment.words.append(word)
    segment.x1 = max(segment.x1, word.x1)
    segment.top, segment.bottom = min(segment.top, word.top), max(segment.bottom, word.bottom)
    if word.size > segment.size + 0.1:
        segment.size, segment.baseline = word.size, word.baseline
    return True


def lines_of(segments: Iterable[Segment]) -> list[Line]:
    """Group segments by baseline, from top to bottom."""
    lines: list[list[Segment]] = []
    for segment in sorted(segments, key=lambda s: (s.baseline, s.x0)):
        last = lines[-1][0] if lines else None
        if last is not None and abs(segment.baseline - last.baseline) < 0.25 * max(segment.size, last.size):
            lines[-1].append(segment)
        else:
            lines.append([segment])
    return [Line(_labelled(sorted(line, key=lambda s: s.x0))) for line in lines]


def _labelled(segments: list[Segment]) -> list[Segment]:
    """A bullet or a number that stands off belongs to the text that it labels."""
    if len(segments) > 1 and _LABEL.fullmatch(segments[0].text):
        first, second, *rest = segments
        first.take(second)
        first.words[-len(second.words)].spaced = True
        return [first, *rest]
    return segments
