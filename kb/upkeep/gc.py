"""Giving back what nothing refers to: blobs, cached vectors, left-over folders and free database pages."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, select, text
from sqlmodel import SQLModel, col

from kb.adaptation.lowrank import unneeded
from kb.base import NEXT_INDEX
from kb.locks import home_lock
from kb.reembed import running
from kb.stats import home_bytes
from kb.tables import Chunk, Embedding, Passage, Section, WorkItem, now

if TYPE_CHECKING:
    from kb.base import KnowledgeBase

SCRATCH = "scratch"  # unpacked archives and half-written restores; nothing in it outlives a command
# A running search stores a blob a moment before the row that refers to it.
_GRACE_S = 3600.0
_DIGEST = re.compile(r"[0-9a-f]{64}")
# Their text columns hold passages and hashes of other things; everything else may name a blob.
_WITHOUT_BLOBS = {str(table.__tablename__) for table in (Chunk, Passage, Section, Embedding)}


@dataclass
class GarbageReport:
    """What was removed; `bytes_freed` is by how much the home folder shrank."""

    blobs: int = 0
    embeddings: int = 0
    adapters: int = 0
    folders: int = 0
    bytes_freed: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def collect_garbage(kb: KnowledgeBase, *, waiting: Callable[[str], None] | None = None) -> GarbageReport:
    """Remove what nothing refers to. Retrieval, runs and skills stay as they are.

    Cached vectors of texts that no document has any more go, as do those of embedding models other than the
    one that serves, the one that is being prepared and the one that the live index was made by, and adapters
    that were set aside for other models than these. Raises StoreLocked.
    """
    report = GarbageReport()
    with home_lock(kb.home, timeout_s=kb.settings.lock_timeout_s, waiting=waiting):
        before = home_bytes(kb.home)
        report.blobs = _blobs(kb)
        report.embeddings = _embeddings(kb)
        report.adapters = _adapters(kb)
        report.folders = _folders(kb)
        _compact(kb)
        report.bytes_freed = max(0, before - home_bytes(kb.home))
    return report


def _blobs(kb: KnowledgeBase) -> int:
    root = kb.home / "blobs"
    files = {folder.name + file.name: file for folder in root.glob("??") for file in folder.iterdir()}
    used = set(referenced_blobs(kb))  # after the listing: what is stored from now on is not in it
    oldest = time.time() - _GRACE_S if _searching(kb) else time.time()
    removed = 0
    for name, file in files.items():
        if name not in used and file.stat().st_mtime <= oldest:
            file.unlink()
            removed += 1
    return removed


def referenced_blobs(kb: KnowledgeBase) -> Iterator[str]:
    """Every digest that stands anywhere in the database. Not by a list of columns, which would age."""
    with kb.session() as session:
        connection = session.connection()
        for name, table in SQLModel.metadata.tables.items():
            if name in _WITHOUT_BLOBS:
                continue
            columns = [c for c in table.columns if str(c.type) in ("VARCHAR", "JSON")]
            if not columns:
                continue
            # As text: a digest inside a JSON document needs no parsing to be seen.
            plain = text(f'SELECT {", ".join(chr(34) + c.name + chr(34) for c in columns)} FROM "{name}"')
            for row in connection.execution_options(yield_per=1000).execute(plain):
                for value in row:
                    if isinstance(value, str):
                        yield from _DIGEST.findall(value)


def _searching(kb: KnowledgeBase) -> bool:
    with kb.session() as session:
        leased = select(func.count()).select_from(WorkItem).where(
            col(WorkItem.state) == "leased", col(WorkItem.lease_until) > now()
        )  # fmt: skip
        return bool(session.connection().execute(leased).scalar_one())


def _embeddings(kb: KnowledgeBase) -> int:
    with kb.session() as session:
        connection = session.connection()
        if not connection.execute(select(func.count()).select_from(Embedding)).scalar_one():
            return 0
        models = _models(kb)
        unused = ~col(Embedding.text_hash).in_(select(col(Passage.text_hash)))
        gone = connection.execute(delete(Embedding).where(unused | col(Embedding.model).not_in(models)))
        session.commit()
        return gone.rowcount


def _models(kb: KnowledgeBase) -> set[str]:
    """Those that something needs."""
    recorded = (row.model for row in kb.serving.record.rows())
    return {kb.serving.model_id, *recorded, kb.vectors.model() or ""}


def _adapters(kb: KnowledgeBase) -> int:
    recorded = {row.model for row in kb.serving.record.rows()}
    return sum(_remove(file) for file in unneeded(kb.home / "adapters", recorded))


def _folders(kb: KnowledgeBase) -> int:
    removed = 0
    if (kb.home / "chroma").is_dir():
        with kb.vectors.exclusive():
            live, leftovers = kb.vectors.folders()
            if live is not None and not kb.indexed_vectors():  # of a larger store, or of an earlier version
                kb.vectors.drop()
                leftovers.append(live)
            for folder in leftovers:
                removed += _remove(folder)
    if kb.serving.record.next() is None and not running(kb.home):
        removed += _remove(kb.home / NEXT_INDEX)
    scratch = kb.home / SCRATCH
    for folder in sorted(scratch.glob("*")):
        removed += _remove(folder)
    return removed


def _remove(path: Path) -> bool:
    if not path.exists():
        return False
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    return not path.exists()


def _compact(kb: KnowledgeBase) -> None:
    with kb.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        free = connection.execute(text("PRAGMA freelist_count")).scalar_one()
        pages = connection.execute(text("PRAGMA page_count")).scalar_one()
        if free > 0.05 * pages:
            connection.execute(text("VACUUM"))
        connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)"))
