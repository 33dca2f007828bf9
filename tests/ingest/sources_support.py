"""What tests of sources share."""

from __future__ import annotations

from pathlib import Path

from sqlmodel import select

from kb import KnowledgeBase
from kb.tables import Document


def documents(kb: KnowledgeBase) -> dict[str, Document]:
    with kb.session() as session:
        return {d.path: d for d in session.exec(select(Document))}


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_md", ".md").replace("_rst", ".rst")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root
