"""From sections to chunks (lexical unit) and passages (vector unit).

A chunk is at most 1600 characters of consecutive lines of one section: BM25 prefers large units. A passage
is at most 220 tokens of the embedding model, breadcrumb included: what exceeds the model's window would be
cut unseen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ingest.document import LoadedDocument, LoadedSection
from kb.documents import NewChunk, NewSection
from kb.embedding import Embedder

VERSION = 1
CHUNK_CHARACTERS = 1600
_BREADCRUMB_CHARACTERS = 200
_SEPARATOR = " › "
_FENCE = re.compile(r"\s*(```+|~~~+)")


@dataclass(frozen=True)
class Span:
    """Lines `start`..`end`, 1-based and inclusive; not `whole`: a part of one line that is too long."""

    start: int
    end: int
    text: str
    whole: bool = True


def chunk_document(
    document: LoadedDocument, lines: Sequence[str], embedder: Embedder
) -> tuple[list[NewSection], list[NewChunk]]:
    """Cut every section; `lines` are the document's lines. Sections without text yield no chunk."""
    sections = [NewSection(s.heading_path, s.start_line, s.end_line, s.page) for s in document.sections]
    spans = [
        (index, section, span)
        for index, section in enumerate(document.sections)
        for span in _cut(section, lines)
    ]
    crumbs = [breadcrumb(document.title, section.heading_path) for _, section, _ in spans]
    passages = _passages([span.text for _, _, span in spans], crumbs, embedder)
    chunks = [
        NewChunk(index, crumbs[i], span.text, span.start, span.end, section.page, passages[i])
        for i, (index, section, span) in enumerate(spans)
    ]
    return sections, chunks


def breadcrumb(title: str, heading_path: str) -> str:
    """Title and headings, without repeating the title when it is the first heading."""
    headings = [h for h in heading_path.split(_SEPARATOR) if h]
    parts = headings if headings and headings[0] == title else [title, *headings]
    return _SEPARATOR.join(p for p in parts if p)[:_BREADCRUMB_CHARACTERS]


def _cut(section: LoadedSection, lines: Sequence[str]) -> Iterator[Span]:
    if section.text is not None:  # rendered text cites the lines it was made from, as a whole
        rendered = section.text.split("\n")
        for span in _pack(_blocks(rendered, 1)):
            yield Span(section.start_line, section.end_line, span.text)
        return
    own = lines[section.start_line - 1 : section.end_line]
    yield from _pack(_blocks(own, section.start_line))


def _blocks(lines: Sequence[str], first: int) -> list[Span]:
    """Paragraphs, fences and tables: runs that are better not cut, without the blank lines around."""
    blocks: list[Span] = []
    start: int | None = None
    fence = ""
    for offset, line in enumerate([*lines, ""]):
        mark = _FENCE.match(line)
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
            blocks.append(Span(first + start, first + offset - 1, "\n".join(lines[start:offset])))
            start = None
    return [piece for block in blocks for piece in _split_block(block)]


def _split_block(block: Span) -> Iterator[Span]:
    """A block that fits stays whole; a longer one is cut between lines, an overlong line between words."""
    if len(block.text) <= CHUNK_CHARACTERS:
        yield block
        return
    pending: list[str] = []
    start = block.start
    size = 0
    for number, line in enumerate(block.text.split("\n"), start=block.start):
        if pending and size + len(line) + 1 > CHUNK_CHARACTERS:
            yield Span(start, number - 1, "\n".join(pending))
            pending, size = [], 0
        if not pending:
            start = number
        if len(line) > CHUNK_CHARACTERS:
            for part in split_words(line, CHUNK_CHARACTERS):
                yield Span(number, number, part, whole=False)
            continue
        pending.append(line)
        size += len(line) + 1
    if pending:
        yield Span(start, block.end, "\n".join(pending))


def split_words(text: str, limit: int) -> Iterator[str]:
    """Pieces of at most `limit` characters, cut at a blank where there is one in the second half."""
    while len(text) > limit:
        cut = text.rfind(" ", limit // 2, limit)
        cut = limit if cut < 0 else cut
        yield text[:cut]
        text = text[cut:].lstrip(" ")
    if text.strip():
        yield text


def _pack(blocks: Sequence[Span]) -> Iterator[Span]:
    """Join neighbouring blocks while they fit. Blank lines between them count by their number."""
    current: Span | None = None
    for block in blocks:
        if current is None:
            current = block
            continue
        gap = block.start - current.end
        joined = current.text + "\n" * gap + block.text
        if current.whole and block.whole and gap >= 1 and len(joined) <= CHUNK_CHARACTERS:
            current = Span(current.start, block.end, joined)
        else:
            yield current
            current = block
    if current is not None:
        yield current


# --- passages ---


def _passages(texts: Sequence[str], crumbs: Sequence[str], embedder: Embedder) -> list[tuple[str, ...]]:
    """For every chunk its passages: whole lines, as many as fit beside the breadcrumb."""
    lines = [text.split("\n") for text in texts]
    counts = iter(embedder.count_tokens([line for chunk in lines for line in chunk]))
    heads = dict(zip(crumbs, embedder.count_tokens(crumbs), strict=True))
    result = []
    for chunk, crumb in zip(lines, crumbs, strict=True):
        head, used = _short(crumb, heads[crumb], embedder)
        budget = embedder.passage_tokens - used
        pieces = _group([(line, next(counts)) for line in chunk], budget, embedder)
        result.append(tuple(f"{head}\n{piece}" if head else piece for piece in pieces))
    return result


def _short(crumb: str, tokens: int, embedder: Embedder) -> tuple[str, int]:
    """A breadcrumb may take a third of the passage; a longer one keeps its end, the most specific."""
    limit = embedder.passage_tokens // 3
    while tokens > limit:
        crumb = crumb[len(crumb) // 4 + 1 :]
        tokens = embedder.count_tokens([crumb])[0]
    return crumb, tokens


def _group(lines: Sequence[tuple[str, int]], budget: int, embedder: Embedder) -> Iterator[str]:
    pending: list[str] = []
    used = 0
    for line, count in lines:
        for part, tokens in _fit(line, count, budget, embedder):
            if pending and used + tokens > budget:
                yield "\n".join(pending).strip("\n")
                pending, used = [], 0
            pending.append(part)
            used += tokens
    text = "\n".join(pending).strip("\n")
    if text.strip():
        yield text


def _fit(line: str, tokens: int, budget: int, embedder: Embedder) -> Iterator[tuple[str, int]]:
    """The line itself, or halves of it until each fits."""
    if tokens <= budget or len(line) < 2:
        yield line, tokens
        return
    parts = list(split_words(line, max(1, (len(line) + 1) // 2)))
    for part, count in zip(parts, embedder.count_tokens(parts), strict=True):
        yield from _fit(part, count, budget, embedder)
