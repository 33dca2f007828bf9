"""The lexical indexes: one FTS5 table per partition (kind and scope), derived from the chunk table.

What is out of scope costs nothing that way, however much of it there is. A table keeps no text of its own: it
reads a view of its partition's chunks, and triggers on the chunk table keep both together, in one transaction
with every change. They index what `kb.scripts.spaced` makes of it, which every connection has. Who changes
chunks calls `ensure` before and `settle` after that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.exc import DatabaseError
from sqlmodel import col

from kb.errors import KnowledgeBaseError
from kb.tables import Chunk, LexicalIndexState, partition_of
from kb.wording import counted

if TYPE_CHECKING:
    from sqlalchemy import Connection

_PREFIX = "chunk_fts"
_SHADOWS = ("data", "idx", "docsize", "config")  # FTS5's own tables


def table_of(partition: str) -> str:
    """The FTS5 table of a partition. Columns: breadcrumb and text; the rowid is the chunk's `pk`."""
    return f"{_PREFIX}_{hashlib.sha256(partition.encode()).hexdigest()[:12]}"


def ensure(connection: Connection, kind: str, scope: str) -> None:
    """Have the index of a partition that is about to get chunks."""
    partition = partition_of(kind, scope)
    known = select(col(LexicalIndexState.partition)).where(col(LexicalIndexState.partition) == partition)
    if connection.execute(known).first() is None:
        row = {"partition": partition, "kind": kind, "scope": scope, "chunks": 0}
        connection.execute(insert(LexicalIndexState), [row])  # first: DDL would begin no transaction
        for statement in _schema(kind, scope).values():
            connection.exec_driver_sql(statement)


def settle(connection: Connection, partitions: Iterable[str]) -> None:
    """Record how many chunks the `partitions` have now; the index of one without any is dropped."""
    states = connection.execute(
        select(col(LexicalIndexState.partition), col(LexicalIndexState.kind), col(LexicalIndexState.scope))
        .where(col(LexicalIndexState.partition).in_(list(partitions)))
    ).all()  # fmt: skip
    for partition, kind, scope in states:
        # Of FTS5's rows, a few bytes each: to count the chunks would read their text at every change.
        chunks = connection.exec_driver_sql(
            f"SELECT count(*) FROM {table_of(partition)}_docsize"
        ).scalar_one()
        this = col(LexicalIndexState.partition) == partition
        if chunks:
            connection.execute(update(LexicalIndexState).where(this).values(chunks=chunks))
        else:
            connection.execute(delete(LexicalIndexState).where(this))
            _drop(connection, _schema(kind, scope))


def rebuild(connection: Connection) -> None:
    """Make all indexes anew from the chunk table, within the caller's transaction."""
    connection.execute(delete(LexicalIndexState))
    _drop(connection, _present(connection))
    partitions = connection.execute(select(col(Chunk.kind), col(Chunk.scope)).distinct()).all()
    for kind, scope in partitions:
        ensure(connection, kind, scope)
        table = table_of(partition_of(kind, scope))
        connection.exec_driver_sql(f"INSERT INTO {table}({table}) VALUES ('rebuild')")
    settle(connection, [partition_of(kind, scope) for kind, scope in partitions])


def problem(connection: Connection) -> str | None:
    """Why the indexes cannot agree with the chunk table, or None. Compares numbers, not content."""
    states = connection.execute(
        select(col(LexicalIndexState.kind), col(LexicalIndexState.scope), col(LexicalIndexState.chunks))
    ).all()
    schema: dict[str, str] = {}
    for kind, scope, _ in states:
        schema |= _schema(kind, scope)
    present = _present(connection)
    if present.keys() == schema.keys() and present != schema:
        return "was made by another version"
    if present != schema:
        return "is missing or incomplete"
    indexed = 0
    for kind, scope, chunks in states:
        table = table_of(partition_of(kind, scope))
        try:
            held = connection.exec_driver_sql(f"SELECT count(*) FROM {table}_docsize").scalar_one()
        except DatabaseError:
            return "is incomplete"
        if held != chunks:
            return f"holds {held} of {counted(chunks, 'chunk')} of {partition_of(kind, scope)}"
        indexed += held
    stored = connection.execute(select(func.count()).select_from(Chunk)).scalar_one()
    return None if indexed == stored else f"holds {indexed} of {counted(stored, 'chunk')}"


def disagreeing(connection: Connection) -> list[str]:
    """The partitions whose postings are not those of their chunks' text. Reads everything."""
    found = []
    for partition in connection.execute(select(col(LexicalIndexState.partition))).scalars().all():
        table = table_of(partition)
        try:
            # Rank 1 has FTS5 compare its postings with the text that they were made from.
            connection.exec_driver_sql(f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)")
        except (DatabaseError, KnowledgeBaseError):
            found.append(partition)
    return found


def _schema(kind: str, scope: str) -> dict[str, str]:
    """What a partition's index consists of: name -> statement, each after what it needs."""
    table = table_of(partition_of(kind, scope))

    def held(row: str) -> str:
        return f"{row}kind = {_literal(kind)} AND {row}scope = {_literal(scope)}"

    columns = "rowid, breadcrumb, text"
    new = f"INSERT INTO {table}({columns}) SELECT new.pk, spaced(new.breadcrumb), spaced(new.text)"
    gone = "'delete', old.pk, spaced(old.breadcrumb), spaced(old.text)"
    old = f"INSERT INTO {table}({table}, {columns}) SELECT {gone}"
    changed = "UPDATE OF breadcrumb, text, scope, kind ON chunk"
    return {
        f"{table}_chunks": f"CREATE VIEW {table}_chunks AS"
        f" SELECT pk, spaced(breadcrumb) AS breadcrumb, spaced(text) AS text FROM chunk WHERE {held('')}",
        table: f"CREATE VIRTUAL TABLE {table} USING fts5(breadcrumb, text,"
        f" content='{table}_chunks', content_rowid='pk', tokenize='porter unicode61')",
        f"{table}_insert": f"CREATE TRIGGER {table}_insert AFTER INSERT ON chunk"
        f" WHEN {held('new.')} BEGIN {new}; END",
        f"{table}_delete": f"CREATE TRIGGER {table}_delete AFTER DELETE ON chunk"
        f" WHEN {held('old.')} BEGIN {old}; END",
        f"{table}_update": f"CREATE TRIGGER {table}_update AFTER {changed}"
        f" WHEN {held('old.')} OR {held('new.')}"
        f" BEGIN {old} WHERE {held('old.')}; {new} WHERE {held('new.')}; END",
    }


def _literal(label: str) -> str:
    """A label as SQL: parameters are not possible in a schema."""
    return "'" + label.replace("'", "''").replace("\x00", "' || char(0) || '") + "'"


def _present(connection: Connection) -> dict[str, str]:
    """What there is of lexical indexes, whole or not, but for FTS5's own tables: name -> statement."""
    rows = connection.execute(
        text("SELECT name, sql FROM sqlite_master WHERE name LIKE :like AND sql IS NOT NULL"),
        {"like": f"{_PREFIX}%"},
    ).all()
    tables = {name for name, statement in rows if statement.startswith("CREATE VIRTUAL")}
    shadows = {f"{table}_{shadow}" for table in tables for shadow in _SHADOWS}
    return {name: statement for name, statement in rows if name not in shadows}


def _drop(connection: Connection, present: dict[str, str]) -> None:
    # Triggers and the table before the view that the table reads.
    for name, statement in sorted(present.items(), key=lambda item: item[1].startswith("CREATE VIEW")):
        words = statement.split()
        what = "TABLE" if words[1] == "VIRTUAL" else words[1]
        connection.exec_driver_sql(f'DROP {what} IF EXISTS "{name}"')
