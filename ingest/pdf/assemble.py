"""Pages to one document: what page breaks have parted is joined, headings make sections."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ingest.pdf.blocks import Block, code_text
from ingest.pdf.headings import OutlineEntry, find_headings
from ingest.pdf.lines import join_lines
from ingest.pdf.tables import Table
from ingest.rendering import MarkdownWriter, clean

_ENDED = re.compile(r"[.!?:;…。！？：|]['\")\]]*$")
_CONTINUED = re.compile(r"\(?\s*(?:table\s+[\dA-Z.-]+.*)?\(?cont(?:inued|'d|\.)\)?\W*", re.IGNORECASE)
_LEADERS = re.compile(r"(?:\s*[.·…_]){4,}\s*")
_EDGE = 12.0  # points by which the columns of a continued table may be off


def write_pages(writer: MarkdownWriter, pages: Sequence[list[Block]], outline: Sequence[OutlineEntry]) -> str:
    """Write all pages. Returns the heading that the document seems to be titled by, or nothing."""
    blocks = _joined([block for page in pages for block in page])
    levels = find_headings(blocks, outline)
    known = _hyphenated(blocks)
    page = 0
    margins: list[float] = []  # where the items of the current list and of those around it begin
    for index, block in enumerate(blocks):
        while page < block.page:
            writer.start_page()
            page += 1
        if block.kind == "item" and index not in levels:
            x0 = block.lines[0].x0
            tight = bool(margins)
            margins = [x for x in margins if x < x0 + 4] or [x0]
            if x0 > margins[-1] + 4:
                margins.append(x0)
            writer.block(["  " * (len(margins) - 1) + _text(block, known)], tight=tight)
            continue
        margins = []
        _write(writer, block, levels.get(index), known)
    while page < len(pages):
        writer.start_page()
        page += 1
    first = [i for i in levels if blocks[i].page <= 2]
    return _text(blocks[max(first, key=lambda i: (blocks[i].size, -i))], known).rstrip(" :") if first else ""


def _write(writer: MarkdownWriter, block: Block, level: int | None, known: frozenset[str]) -> None:
    if block.kind == "table" and block.table is not None:
        head, rows = block.table.rows[: block.table.head], block.table.rows[block.table.head :]
        header = [" / ".join(dict.fromkeys(filter(None, column))) for column in zip(*head, strict=True)]
        writer.table([clean(cell) for cell in header], [[clean(cell) for cell in row] for row in rows])
    elif block.kind == "scan":
        for paragraph in re.split(r"\n\s*\n", clean(block.scan)):
            if paragraph.strip():
                writer.block([line.rstrip() for line in paragraph.strip().split("\n")])
    elif level is not None:
        text = _text(block, known)
        writer.heading(level, text.rstrip(" :") or text)
    elif block.kind == "code":
        writer.code([clean(line) for line in code_text(block.lines)])
    elif text := _text(block, known):
        writer.block([text])


def _text(block: Block, known: frozenset[str]) -> str:
    texts = [line.text for line in block.lines]
    bullet = block.kind == "item" and block.lines[0].bullet
    if bullet:
        texts[0] = texts[0].lstrip(block.lines[0].words[0].text + "•–").lstrip()
    text = _LEADERS.sub(" … ", " ".join(clean(join_lines(texts, known)).split()))
    return f"- {text}" if bullet else text


def _hyphenated(blocks: Sequence[Block]) -> frozenset[str]:
    """Words with a hyphen inside, as they stand within lines."""
    text = "\n".join(line.text for block in blocks for line in block.lines)
    return frozenset(word.lower() for word in re.findall(r"[^\W\d_]+-[^\W\d_]+", text))


def _joined(blocks: Sequence[Block]) -> list[Block]:
    """Paragraphs and code that go on in the next column or on the next page as one; the parts of a table stay
    on their pages, each with the header.
    """
    joined: list[Block] = []
    for block in blocks:
        last = joined[-1] if joined else None
        if last is None:
            joined.append(block)
            continue
        if block.table is not None:
            table = _table_before(joined, block)
            if table is not None:
                _continue_table(table, block.table)
        if _parted(last, block):
            last.lines += block.lines
        else:
            joined.append(block)
    return joined


def _parted(last: Block, block: Block) -> bool:
    """Whether a column or page break stands between two parts of one paragraph or listing."""
    if last.kind == "code" and block.kind == "code":
        return block.page == last.page + 1 and abs(block.size - last.size) < 0.6
    if last.kind not in ("text", "item") or block.kind != "text" or block.page > last.page + 1:
        return False
    before, after = last.lines[-1], block.lines[0]
    if block.page == last.page and after.top > before.top:
        return False
    if abs(before.size - after.size) > 0.6 or before.bold != after.bold:
        return False
    text, more = before.text.rstrip(), after.text.lstrip()
    if _ENDED.search(text):
        return False
    full = len(last.lines) > 1 and before.x1 > max(line.x1 for line in last.lines) - 3 * before.size
    return more[:1].islower() or (full and block.page > last.page and more[:1].isalnum())


def _table_before(joined: Sequence[Block], block: Block) -> Table | None:
    """The table on the page before that nothing but a remark that it continues parts from this one."""
    for last in reversed(joined[-2:]):
        if last.table is not None:
            return last.table if last.page == block.page - 1 else None
        if not _CONTINUED.fullmatch(last.text.strip()):
            return None
    return None


def _continue_table(before: Table, table: Table) -> None:
    """Put the header of a table on its next page, unless it is there."""
    if len(before.rows[0]) != len(table.rows[0]) or len(before.edges) != len(table.edges):
        return
    shift = table.edges[0] - before.edges[0]
    if any(abs(b + shift - a) > _EDGE for a, b in zip(table.edges, before.edges, strict=True)):
        return
    head = before.rows[: before.head]
    if table.rows[: before.head] != head:
        table.rows = head + table.rows
    table.head = before.head
