"""Skills that this home has distilled, as a source of their own for each visibility."""

from __future__ import annotations

from pathlib import Path

from ingest.pipeline import Ingestion
from ingest.report import IngestReport
from kb import KnowledgeBase


def ingest_distilled(kb: KnowledgeBase, folder: Path, visibility: str) -> IngestReport:
    """Bring the knowledge base in line with a folder of skills. Raises StoreLocked, QuotaExceeded."""
    run = Ingestion(kb)
    with run.exclusive():
        run.add_library(folder.resolve(), f"distilled:{visibility}", (), visibility)
        return run.finish()
