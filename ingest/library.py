"""The curated library that ships with the package, ingested like any other source."""

from __future__ import annotations

import hashlib
import json

from sqlmodel import col, select

from ingest import chunking
from ingest.discover import walk
from ingest.errors import Unreadable
from ingest.loaders.skill import folder_files
from ingest.pipeline import Ingestion
from ingest.registry import content_of, load_file, loaders
from ingest.report import IngestReport, ProgressCallback
from ingest.scope_files import SOURCE_FILE
from kb import KnowledgeBase
from kb.embedding import Embedder
from kb.errors import SkillInvalid
from kb.tables import Source

KEY = "library"
INDEX = "index.md"  # for people; everything in it is said better by the documents it lists


def ingest_library(
    kb: KnowledgeBase, progress: ProgressCallback | None = None, *, wait: bool = True
) -> IngestReport:
    """Bring the curated library into the knowledge base.

    A second call finds the digest of its files unchanged and returns at once, without loading a model.
    Without `wait`, it is left as it is, with a notice, while another process changes documents.
    """
    digest = _digest(kb)

    def done() -> bool:
        return _stored_digest(kb) == digest

    if done():
        return IngestReport()
    run = Ingestion(kb, progress=progress)
    with run.exclusive(needless=lambda: not wait or done()) as held:
        if done():  # another process did it while we waited, and may be at other documents now
            return IngestReport()
        if not held:
            kb.notice("another process is changing documents: what is stored answers, not all that will be")
            return IngestReport()
        source_id = run.add_library(kb.library_path(), KEY, without=(INDEX,))
        report = run.finish()
        if not report.failed:
            with kb.session() as session:
                source = session.get_one(Source, source_id)
                source.digest = digest
                session.add(source)
                session.commit()
        return report


def library_passages(kb: KnowledgeBase, embedder: Embedder) -> tuple[list[str], set[int]]:
    """The passages that the library would be cut into for `embedder`, and the id of its source."""
    root = kb.library_path()
    texts: list[str] = []
    for path in walk(root):
        if path.parent == root and path.name == INDEX:
            continue
        try:
            file = content_of(path, path.read_bytes(), root)
            _, loaded = load_file(file)
        except (Unreadable, SkillInvalid):  # whoever ingests it says so
            continue
        lines = (file.text if loaded.text is None else loaded.text).split("\n")
        texts += [p for c in chunking.chunk_document(loaded, lines, embedder)[1] for p in c.passages]
    with kb.session() as session:
        sources = session.exec(select(Source.id).where(col(Source.key) == KEY)).all()
    return texts, {i for i in sources if i is not None}


def _stored_digest(kb: KnowledgeBase) -> str:
    with kb.session() as session:
        source = session.exec(select(Source).where(col(Source.key) == KEY)).first()
        return source.digest if source is not None else ""


def _digest(kb: KnowledgeBase) -> str:
    """Of every file of the library and of all that decides how it is cut."""
    root = kb.library_path()
    digest = hashlib.sha256()
    registry = [(x.name, x.version, x.priority) for x in loaders()]
    digest.update(json.dumps([str(root), registry, chunking.VERSION, kb.embedder.cutting]).encode())
    for path in (root / SOURCE_FILE, *walk(root)):
        for file in folder_files(path.parent) if path.name == "SKILL.md" else [path]:
            content = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "-"
            digest.update(f"{file.relative_to(root)}\x00{content}\x00".encode())
    return digest.hexdigest()
