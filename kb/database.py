"""The SQLite database: opening, migrating, and turning SQLite's failures into typed errors."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.errors import HomeUnavailable, KnowledgeBaseError, StoreDamaged, StoreFull, StoreLocked, StoreTooNew
from kb.locks import file_lock
from kb.migrations import HEAD
from kb.scripts import spaced

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_MAGIC = b"SQLite format 3\x00"


def open_database(path: Path, *, timeout_s: float) -> Engine:
    """Open (create, migrate) the database at `path`.

    Raises StoreDamaged, StoreLocked, StoreFull, StoreTooNew or HomeUnavailable.
    """
    from sqlalchemy import URL, create_engine, event

    _inspect_header(path)
    url = URL.create("sqlite", database=str(path))  # a path may hold what means something in a URL
    engine = create_engine(url, connect_args={"timeout": min(timeout_s, 30.0)})
    event.listen(engine, "connect", _configure)
    event.listen(engine, "handle_error", lambda context: _translate(context, path))
    try:
        # A file without content yet may be in another process's hands: look at it only under the lock.
        fresh = not path.exists() or path.stat().st_size == 0
        if fresh or _revision(engine) != HEAD:
            with file_lock(path.with_suffix(".lock"), timeout_s=timeout_s, what="migrating the database"):
                _migrate(engine, path)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _inspect_header(path: Path) -> None:
    """Recognise a foreign or truncated file before SQLite touches it."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
        size = path.stat().st_size  # last: another process may be letting the file grow
    except FileNotFoundError:
        return
    except OSError as error:
        raise HomeUnavailable(f"cannot read {path}: {error.strerror}", "check its permissions") from error
    if size == 0:
        # Stored blobs mean that there once was a database: an empty one in its place would hide the loss.
        if any((path.parent / "blobs").glob("*")):
            raise _damaged(path, "empty beside stored blobs")
        return
    if len(header) < 100 or not header.startswith(_MAGIC):
        raise _damaged(path, "not an SQLite file")
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    pages = int.from_bytes(header[28:32], "big")
    wal = path.with_name(path.name + "-wal")
    if not (wal.exists() and wal.stat().st_size) and pages * page_size > size:
        raise _damaged(path, f"truncated to {size} of {pages * page_size} bytes")


def _configure(connection: sqlite3.Connection, _record: Any) -> None:
    cursor = connection.cursor()
    # In WAL mode NORMAL survives a crash of the process; FULL also survives a loss of power.
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
    connection.create_function("spaced", 1, spaced, deterministic=True)  # for views and triggers


def _revision(engine: Engine) -> str | None:
    """The stored schema revision, read without Alembic, whose import is slow; None for a new database."""
    from sqlalchemy import text

    with engine.connect() as connection:
        known = connection.execute(
            text("SELECT count(*) FROM sqlite_master WHERE name = 'alembic_version'")
        ).scalar_one()
        if not known:
            return None
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _migrate(engine: Engine, path: Path) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    revision = _revision(engine)  # another process may have migrated while we waited
    if revision == HEAD:
        return
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision is not None and revision not in known:
        raise StoreTooNew(
            f"{path} has schema {revision}, which this version does not know", "use the version that wrote it"
        )
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")  # persistent, once for the life of the file
    with engine.begin() as connection:
        # The driver begins no transaction before DDL: without this, every statement would stand alone.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def fetch_all(connection: Connection, statement: str, parameters: tuple[Any, ...]) -> list[Any]:
    """Rows as plain tuples, for thousands of them: SQLAlchemy's row objects cost more than the query.

    Raises what other statements raise.
    """
    cursor = connection.exec_driver_sql(statement, parameters).cursor
    assert cursor is not None
    try:
        return list(cursor.fetchall())
    except sqlite3.DatabaseError as error:  # in a later row than the first
        typed = classify(error, Path(str(connection.engine.url.database)))
        raise error if typed is None else typed from error


def _damaged(path: Path, why: str) -> StoreDamaged:
    return StoreDamaged(
        f"the database {path} is damaged ({why})",
        "it was left as it is; restore a backup, or move it away to start with an empty one",
    )


def classify(error: BaseException, path: Path) -> KnowledgeBaseError | None:
    """The typed error for what SQLite reports, or None when it is a programming error."""
    text = str(error)
    if re.search(r"database (table )?is locked|database schema is locked", text):
        return StoreLocked(f"the database {path} is locked by another process", "wait for it to finish")
    if re.search(r"disk is full|disk I/O error", text):
        return StoreFull(f"cannot write to {path}: {text}", "free some disk space; nothing stored is lost")
    if re.search(r"malformed|not a database|file is encrypted|corrupt", text):
        return _damaged(path, text)
    if re.search(r"unable to open database file|readonly database", text):
        return HomeUnavailable(f"cannot write {path}: {text}", "check its permissions")
    return None


def _translate(context: Any, path: Path) -> None:
    typed = classify(context.original_exception, path)
    if typed is not None:
        raise typed from context.original_exception
