"""Lexical retrieval: BM25 over chunks (SQLite FTS5), filtered by scope and kind in one statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, text
from sqlalchemy.exc import DatabaseError

if TYPE_CHECKING:
    from sqlmodel import Session

_WORD = re.compile(r"[^\W_]+(?:[._:][^\W_]+|_)*", re.UNICODE)
_MAX_TERMS = 64

_STOP_TEXT = """
a about above after again all also although always am an and any are as at be because been before
being below between both but by can cannot could did do does doing don down during each else few for
from further get gets getting give given gives go goes had has have having he her here his how
however i if in into is it its itself just let like made make makes many may me might more most much
must my need needs never no nor not now of off on once only or other ought our out over own per
please put rather same say says see seem seems shall she should since so some still such take than
that the their them then there these they this those though through thus to too under until up upon
us use used uses using very via want was way we well were what when where whether which while who
whom whose why will with within without would yet you your
"""
STOP_WORDS = frozenset(_STOP_TEXT.split())


@dataclass(frozen=True)
class LexicalHit:
    chunk_pk: int
    score: float  # BM25, larger is better


def terms_of(query: str) -> list[str]:
    """The words of a query that carry meaning, in order, without repetition. Identifiers stay whole."""
    words = dict.fromkeys(w.strip("_") for w in _WORD.findall(query.replace("\x00", " ").lower()))
    words.pop("", None)
    content = [w for w in words if w not in STOP_WORDS]
    return (content or list(words))[:_MAX_TERMS]


def match_expression(terms: Sequence[str]) -> str:
    """An FTS5 expression that cannot be malformed: quoted strings, any of which may match."""
    return " OR ".join('"' + t.replace('"', '""') + '"' for t in terms)


HEADING_WEIGHT = 1.0


def search(
    session: Session,
    terms: Sequence[str],
    *,
    scopes: Sequence[str] | None,
    kinds: Sequence[str] | None,
    limit: int,
) -> list[LexicalHit]:
    """The best `limit` chunks for `terms` among `scopes` and `kinds` (None: all), best first; ties by id.

    Scope and kind are in the index as well: it skips what is out of scope instead of scoring it. Words of one
    label may be in another (`nvidia`, `nvidia:sm_90`), so that the columns have the last word.
    """
    if not terms or scopes == [] or kinds == []:
        return []
    match = "{breadcrumb text} : (" + match_expression(terms) + ")"
    where = ["chunk_fts MATCH :match"]
    filters = {"scope": scopes, "kind": kinds}
    given = {column: list(labels) for column, labels in filters.items() if labels is not None}
    for column, labels in given.items():
        if all(_WORD.search(label) for label in labels):  # a phrase without a word matches nothing
            match = f"{column} : ({match_expression(labels)}) AND {match}"
        where.append(f"chunk.{column} IN :{column}")
    statement = text(
        f"""
        SELECT chunk.pk, -bm25(chunk_fts, :heading_weight, 1.0, 0.0, 0.0) AS score
        FROM chunk_fts JOIN chunk ON chunk.pk = chunk_fts.rowid
        WHERE {" AND ".join(where)} ORDER BY score DESC, chunk.id LIMIT :limit
        """
    ).bindparams(*(bindparam(column, expanding=True) for column in given))
    rows = session.connection().execute(
        statement, {"match": match, "limit": limit, "heading_weight": HEADING_WEIGHT, **given}
    )
    return [LexicalHit(pk, score) for pk, score in rows]


def matched_terms(terms: Sequence[str], content: str) -> list[str]:
    """Which of `terms` a text contains, by their first letters, as the stemmer would see them roughly."""
    lowered = content.lower()
    return [t for t in terms if (t if len(t) < 6 else t[: max(5, len(t) - 3)]) in lowered]


# The index keeps no text of its own: it reads the chunk table, and triggers keep the two together.
_SCHEMA = (
    """CREATE VIRTUAL TABLE chunk_fts USING fts5(
    breadcrumb, text, scope, kind, content='chunk', content_rowid='pk', tokenize='porter unicode61')""",
    """CREATE TRIGGER chunk_fts_insert AFTER INSERT ON chunk BEGIN
    INSERT INTO chunk_fts(rowid, breadcrumb, text, scope, kind)
    VALUES (new.pk, new.breadcrumb, new.text, new.scope, new.kind);
END""",
    """CREATE TRIGGER chunk_fts_delete AFTER DELETE ON chunk BEGIN
    INSERT INTO chunk_fts(chunk_fts, rowid, breadcrumb, text, scope, kind)
    VALUES ('delete', old.pk, old.breadcrumb, old.text, old.scope, old.kind);
END""",
    """CREATE TRIGGER chunk_fts_update AFTER UPDATE OF breadcrumb, text, scope, kind ON chunk BEGIN
    INSERT INTO chunk_fts(chunk_fts, rowid, breadcrumb, text, scope, kind)
    VALUES ('delete', old.pk, old.breadcrumb, old.text, old.scope, old.kind);
    INSERT INTO chunk_fts(rowid, breadcrumb, text, scope, kind)
    VALUES (new.pk, new.breadcrumb, new.text, new.scope, new.kind);
END""",
)
_TRIGGERS = ("chunk_fts_insert", "chunk_fts_delete", "chunk_fts_update")


def problem(session: Session) -> str | None:
    """Why the lexical index cannot agree with the chunk table, or None. Compares numbers, not content."""
    connection = session.connection()
    names = set(
        connection.execute(text("SELECT name FROM sqlite_master WHERE name LIKE 'chunk_fts%'")).scalars()
    )
    if not names.issuperset(("chunk_fts", *_TRIGGERS)):
        return "is missing or incomplete"
    try:
        indexed = connection.execute(text("SELECT count(*) FROM chunk_fts_docsize")).scalar_one()
    except DatabaseError:
        return "is incomplete"
    stored = connection.execute(text("SELECT count(*) FROM chunk")).scalar_one()
    return None if indexed == stored else f"holds {indexed} of {stored} chunks"


def rebuild(session: Session) -> None:
    """Make the lexical index anew from the chunk table: all of it or nothing. `session` must be fresh."""
    connection = session.connection()
    connection.exec_driver_sql("BEGIN IMMEDIATE")  # the driver begins no transaction before DDL
    for trigger in _TRIGGERS:
        connection.execute(text(f"DROP TRIGGER IF EXISTS {trigger}"))
    connection.execute(text("DROP TABLE IF EXISTS chunk_fts"))
    for statement in _SCHEMA:
        connection.exec_driver_sql(statement)
    connection.execute(text("INSERT INTO chunk_fts(chunk_fts) VALUES ('rebuild')"))
