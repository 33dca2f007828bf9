"""What an ingestion tells its caller, during and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Progress:
    """One step forward: `done` of `total` files; chunks stored and pages read so far.

    `message` is for a person.
    """

    done: int
    total: int
    path: str = ""
    chunks: int = 0
    pages: int = 0
    message: str = ""


ProgressCallback = Callable[[Progress], None]


@dataclass
class IngestReport:
    """Numbers of documents, and one line for each file that could not be read.

    `inferred` has the scopes that nobody named, {path, scope, documents, why}.
    `needs_ocr` lists the files with scanned pages; `chunks` counts what was written, not what is stored.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    failed: list[dict[str, str]] = field(default_factory=list)
    needs_ocr: list[str] = field(default_factory=list)
    chunks: int = 0
    elapsed_s: float = 0.0
    notes: list[dict[str, Any]] = field(default_factory=list)
    inferred: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
