"""From sections to chunks (lexical unit) and passages (vector unit).

A chunk is at most 1600 characters of consecutive lines of one section: BM25 prefers large units. A passage
is at most 220 tokens of the embedding model, breadcrumb included: what exceeds the model's window would be
cut unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ingest.blocks import Span, cut, header_above, split_words
from ingest.document import LoadedDocument, LoadedSection
from kb.documents import NewChunk, NewSection
from kb.embedding import Embedder

VERSION = 4  # raise it when the same sections would give other chunks: all files are then read again
_BREADCRUMB_CHARACTERS = 200
_SEPARATOR = " › "


def chunk_document(
    document: LoadedDocument, lines: Sequence[str], embedder: Embedder
) -> tuple[list[NewSection], list[NewChunk]]:
    """Cut every section; `lines` are the document's lines. Sections without text are left out."""
    cuts = [(section, list(_cut(section, lines))) for section in document.sections]
    cuts = [(section, spans) for section, spans in cuts if spans]
    sections = [
        NewSection(
            s.heading_path, s.start_line, s.end_line,
            s.page or document.page_of(s.start_line), rendered=s.text is not None,
        )
        for s, _ in cuts
    ]  # fmt: skip
    spans = [(index, section, span) for index, (section, found) in enumerate(cuts) for span in found]
    crumbs = [breadcrumb(document.title, section.heading_path) for _, section, _ in spans]
    passages = _passages([span.text for _, _, span in spans], crumbs, embedder, document.plain)
    chunks = [
        NewChunk(
            index, crumbs[i], span.text, span.start, span.end,
            section.page or document.page_of(span.start), passages[i],
        )
        for i, (index, section, span) in enumerate(spans)
    ]  # fmt: skip
    return sections, chunks


def breadcrumb(title: str, heading_path: str) -> str:
    """Title and headings, without repeating the title where the first heading is it, or qualified by it."""
    headings = [h for h in heading_path.split(_SEPARATOR) if h]
    named = bool(headings) and (headings[0] == title or f"{title}." in headings[0])
    parts = headings if named else [title, *headings]
    return _SEPARATOR.join(p for p in parts if p)[:_BREADCRUMB_CHARACTERS]


def _cut(section: LoadedSection, lines: Sequence[str]) -> Iterator[Span]:
    if section.text is None:
        yield from cut(lines[section.start_line - 1 : section.end_line], section.start_line)
        return
    for span in cut(section.text.split("\n"), 1):
        if section.origins is None:  # rendered text cites the lines it was made from, as a whole
            yield replace(span, start=section.start_line, end=section.end_line)
        else:
            made_from = section.origins[span.start - 1 : span.end]
            yield replace(span, start=min(a for a, _ in made_from), end=max(b for _, b in made_from))


# --- passages ---


def _passages(
    texts: Sequence[str],
    crumbs: Sequence[str],
    embedder: Embedder,
    plain: Callable[[str], str] | None,
) -> list[tuple[str, ...]]:
    """For every chunk its passages: whole lines, as many as fit beside the breadcrumb."""
    raw = [text.split("\n") for text in texts]
    lines = [[plain(line) if plain else line for line in chunk] for chunk in raw]
    counts = iter(embedder.count_tokens([line for chunk in lines for line in chunk]))
    heads = dict(zip(crumbs, embedder.count_tokens(crumbs), strict=True))
    result = []
    for chunk, written, crumb in zip(lines, raw, crumbs, strict=True):
        head, used = _short(crumb, heads[crumb], embedder)
        budget = embedder.passage_tokens - used
        pieces = _group([(line, next(counts)) for line in chunk], header_above(written), budget, embedder)
        result.append(tuple(f"{head}\n{piece}" if head else piece for piece in pieces))
    return result


def _short(crumb: str, tokens: int, embedder: Embedder) -> tuple[str, int]:
    """A breadcrumb may take a third of the passage; a longer one keeps its end, the most specific."""
    limit = embedder.passage_tokens // 3
    while tokens > limit:
        crumb = crumb[len(crumb) // 4 + 1 :]
        tokens = embedder.count_tokens([crumb])[0]
    return crumb, tokens


def _group(
    lines: Sequence[tuple[str, int]], headers: Sequence[range], budget: int, embedder: Embedder
) -> Iterator[str]:
    """`headers` are, for every line, the lines with the names of the columns that it is a row of."""
    pending: list[str] = []
    used = 0
    for (line, count), header in zip(lines, headers, strict=True):
        names = [lines[n][0] for n in header if lines[n][0].strip()]
        name_tokens = sum(lines[n][1] for n in header)
        for part, tokens in _fit(line, count, budget, embedder):
            if pending and used + tokens > budget:
                yield "\n".join(pending).strip("\n")
                pending, used = [], 0
                if name_tokens + tokens <= budget and name_tokens <= budget // 3:
                    pending, used = list(names), name_tokens if names else 0
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
