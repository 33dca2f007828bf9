"""A chunk where it stands in its document."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sqlmodel import col, select

from kb.errors import NotFound
from kb.retrieval import citation
from kb.tables import Chunk, Document, Section, Source

if TYPE_CHECKING:
    from kb.base import KnowledgeBase

_PREFIX = re.compile(r"[0-9a-f]{6,64}")


def open_chunk(kb: KnowledgeBase, chunk_id: str, *, context: int = 10) -> dict[str, Any]:
    """The chunk with this id, or the only one whose id begins so (six characters at least).

    `lines` are [{number, text, inside}]: the chunk's lines and up to `context` more on either side.
    Raises NotFound, and BlobMissing where the document's text is lost.
    """
    wanted = chunk_id.strip().lower()
    if not _PREFIX.fullmatch(wanted):
        raise NotFound(
            f"{chunk_id!r} is no chunk id", "ids have 64 hexadecimal digits, six are enough; see query --json"
        )
    with kb.session() as session:
        found = session.exec(
            select(Chunk, Section, Document, Source)
            .join(Section, col(Section.id) == col(Chunk.section_id))
            .join(Document, col(Document.id) == col(Chunk.document_id))
            .join(Source, col(Source.id) == col(Document.source_id))
            .where(col(Chunk.id) >= wanted, col(Chunk.id) < wanted + "g")  # LIKE would read every id
            .limit(2)
        ).all()
    if not found:
        raise NotFound(f"no chunk {chunk_id}", "its document may have changed since; ask again with query")
    if len(found) > 1:
        raise NotFound(f"several chunks begin with {chunk_id}", "give more digits")
    chunk, section, document, source = found[0]
    lines = kb.blobs.text(document.text_sha).split("\n")
    first = max(1, chunk.start_line - context)
    last = min(len(lines), chunk.end_line + context)
    return {
        "chunk_id": chunk.id,
        "citation": citation(
            document.path, chunk.start_line, chunk.end_line, section.heading_path, chunk.page
        ),
        "source": source.name,
        "visibility": source.visibility,
        "path": document.path,
        "location": document.location,
        "title": document.title,
        "section": section.heading_path,
        "kind": chunk.kind,
        "scope": chunk.scope,
        "inferred": document.inferred,
        "version": str(document.meta.get("version") or source.version),
        "page": chunk.page,
        "start_line": chunk.start_line,
        "end_line": chunk.end_line,
        "text": chunk.text,
        "rendered": section.rendered,
        "lines": [
            {
                "number": number,
                "text": lines[number - 1],
                "inside": chunk.start_line <= number <= chunk.end_line,
            }
            for number in range(first, last + 1)
        ],
    }
