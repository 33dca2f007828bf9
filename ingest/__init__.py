"""Ingestion: loaders, chunking, profiler traces and their diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ingest.report import IngestReport, Progress

if TYPE_CHECKING:
    from ingest.library import ingest_library
    from ingest.pipeline import ingest_paths

__all__ = ["IngestReport", "Progress", "ingest_library", "ingest_paths"]


def __getattr__(name: str) -> Any:
    # SQLAlchemy and the loaders are imported when they are used, not by `import ingest`.
    if name == "ingest_library":
        from ingest.library import ingest_library

        return ingest_library
    if name == "ingest_paths":
        from ingest.pipeline import ingest_paths

        return ingest_paths
    raise AttributeError(name)
