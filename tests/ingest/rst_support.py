"""What several tests of reStructuredText share."""

from __future__ import annotations

from pathlib import Path

from ingest.document import FileContent, LoadedDocument
from ingest.loaders.rst import RstLoader


def load(text: str, name: str = "a.rst", root: Path | None = None) -> LoadedDocument:
    file = FileContent(Path(name), text.encode(), text, (), root)
    return RstLoader().load(file)


def text_of(document: LoadedDocument) -> str:
    return "\n\n".join(s.text or "" for s in document.sections)


def section(document: LoadedDocument, heading: str) -> str:
    return next(s.text or "" for s in document.sections if s.heading_path == heading)
