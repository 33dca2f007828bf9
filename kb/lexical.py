"""Lexical retrieval: BM25 over chunks (SQLite FTS5), in the partitions that may be seen and in no others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kb.database import fetch_all
from kb.lexical_index import table_of
from kb.scripts import pieces, spaced

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlmodel import Session

Frequencies = Mapping[str, Any]  # by partition, an array

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
    """`score` is BM25, larger being better; `coverage` is the share of the terms that it has, weighed by
    their rarity.
    """

    chunk_pk: int
    score: float
    coverage: float


def terms_of(query: str) -> list[str]:
    """The words of a query that carry meaning, in order, without repetition. Identifiers stay whole."""
    found = _WORD.findall(query.replace("\x00", " ").lower())
    words = dict.fromkeys(w.strip("_") for word in found for w in pieces(word))
    words.pop("", None)
    content = [w for w in words if w not in STOP_WORDS]
    return (content or list(words))[:_MAX_TERMS]


def match_expression(terms: Sequence[str]) -> str:
    """An FTS5 expression that cannot be malformed: quoted strings, any of which may match."""
    return " OR ".join(map(_phrase, terms))


def _phrase(term: str) -> str:
    return '"' + spaced(term).strip().replace('"', '""') + '"'


HEADING_WEIGHT = 1.0
# What may be scored in one partition. With so few postings every term is; of a larger partition the rarest
# terms choose the chunks, and commoner ones count for those only, once. A posting costs a microsecond.
POSTINGS = 10_000
_COMMON = 16  # of the commoner terms, how many are looked at: the commonest of a long question say little
_LEAST = 1e-6  # FTS5's weight of what half of all chunks have


def frequencies(session: Session, terms: Sequence[str], partitions: Mapping[str, int]) -> Frequencies:
    """How many chunks have each of `terms`, by partition that has chunks: (len(terms),) each."""
    connection = session.connection()
    return {p: _frequencies(connection, p, terms) for p in partitions if partitions[p]} if terms else {}


def search(
    session: Session,
    terms: Sequence[str],
    partitions: Mapping[str, int],
    *,
    limit: int,
    known: Frequencies | None = None,
    allowed: Callable[[Any], Any] | None = None,
    shared: bool = False,
) -> list[LexicalHit]:
    """The best `limit` chunks for `terms` among `partitions` (name -> number of chunks), best first.

    A term weighs what its frequency in all of `partitions` together says, wherever it is found: scores of
    different partitions compare. Which of equal chunks are among the best is decided by their ids. `known`
    may have what `frequencies` says of the same terms and partitions. `allowed` says of chunks (n,) which may
    be found: (n,), bool. `shared`: all partitions together may cost what else one may.
    """
    import numpy as np

    if not terms or limit < 1:
        return []
    connection = session.connection()
    by_partition = frequencies(session, terms, partitions) if known is None else known
    if not by_partition:
        return []
    weights = _weights(sum(partitions.values()), np.sum(list(by_partition.values()), axis=0))
    postings = POSTINGS // len(by_partition) if shared else POSTINGS
    found = []
    for partition, counts in by_partition.items():
        scored, common = _split(counts, weights, postings)
        if scored:
            own_weights = _weights(partitions[partition], counts)
            found.append(_scored(connection, partition, terms, scored, own_weights))
        if common:
            found.append(_present(connection, partition, terms, scored, common))
    if not found:
        return []
    of_term, of_chunk, occurrences = np.concatenate(found, axis=1)
    pks, places = np.unique(of_chunk.astype(np.int64), return_inverse=True)
    rarity = weights[of_term.astype(np.int64)]
    # Equal chunks must be equal, whatever the last digits of their partition's.
    scores = np.round(np.bincount(places, rarity * occurrences), 9)
    covered = np.round(np.bincount(places, rarity) / weights.sum(), 9)
    if allowed is not None:
        inside = allowed(pks)
        pks, scores, covered = pks[inside], scores[inside], covered[inside]
    return [
        LexicalHit(int(pks[i]), float(scores[i]), float(covered[i]))
        for i in _best(connection, pks, scores, limit)
    ]


def _weights(chunks: int, counts: Any) -> Any:
    """BM25's weights of terms that so many of `chunks` have, as FTS5 computes them: never quite nothing."""
    import numpy as np

    return np.maximum(np.log((chunks - counts + 0.5) / (counts + 0.5)), _LEAST)


def _frequencies(connection: Connection, partition: str, terms: Sequence[str]) -> Any:
    """How many chunks of a partition have each of `terms`: (len(terms),)."""
    import numpy as np

    table = table_of(partition)
    one = f"SELECT count(*) FROM {table} WHERE {table} MATCH ?"
    rows = fetch_all(connection, " UNION ALL ".join([one] * len(terms)), tuple(map(_phrase, terms)))
    return np.array(rows, dtype=np.float64)[:, 0]


def _split(counts: Any, weights: Any, postings: int) -> tuple[list[int], list[int]]:
    """Which terms are scored in a partition, and which are common there, by index; rarest first."""
    import numpy as np

    rarest = [int(i) for i in np.argsort(counts, kind="stable") if counts[i]]
    few = int(np.searchsorted(np.cumsum(counts[rarest]), postings, side="right"))
    scored, others = rarest[: max(1, few)], rarest[max(1, few) :]
    return scored, [i for i in others if weights[i] > _LEAST][:_COMMON]


def _scored(
    connection: Connection, partition: str, terms: Sequence[str], chosen: Sequence[int], own_weights: Any
) -> Any:
    """(3, n): index of the term, pk of the chunk, and BM25's measure of how often that has it.

    It is 1 for once in a chunk of the partition's average length, and stays below 2.2.
    """
    import numpy as np

    table = table_of(partition)
    one = f"SELECT {{}}, rowid, -bm25({table}, {HEADING_WEIGHT}, 1.0) FROM {table} WHERE {table} MATCH ?"
    statement = " UNION ALL ".join(one.format(i) for i in chosen)
    rows = fetch_all(connection, statement, tuple(_phrase(terms[i]) for i in chosen))
    postings = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    # FTS5 has multiplied with the term's weight in this partition alone.
    postings[2] /= own_weights[postings[0].astype(np.int64)]
    return postings


def _present(
    connection: Connection, partition: str, terms: Sequence[str], scored: Sequence[int], common: Sequence[int]
) -> Any:
    """As `_scored`: 1 for each chunk with a `common` term, of those that have one of the `scored`."""
    import numpy as np

    table = table_of(partition)
    one = f"SELECT {{}}, rowid, 1.0 FROM {table} WHERE {table} MATCH ?"
    statement = " UNION ALL ".join(one.format(i) for i in common)
    among = match_expression([terms[i] for i in scored])
    rows = fetch_all(connection, statement, tuple(f"{_phrase(terms[i])} AND ({among})" for i in common))
    return np.array(rows, dtype=np.float64).reshape(-1, 3).T


def _best(connection: Connection, pks: Any, scores: Any, limit: int) -> list[int]:
    """Positions of the `limit` best, best first."""
    import numpy as np

    chosen = np.arange(len(pks))
    if len(pks) > limit:
        floor = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        tied = [int(pk) for pk in pks[scores == floor]]
        above = scores > floor
        ids = fetch_all(
            connection,
            "SELECT pk FROM chunk WHERE pk IN (SELECT value FROM json_each(?)) ORDER BY id LIMIT ?",
            (json.dumps(tied), limit - int(above.sum())),
        )
        chosen = np.flatnonzero(above | np.isin(pks, ids))
    return [int(i) for i in chosen[np.argsort(-scores[chosen], kind="stable")]]


def matched_terms(terms: Sequence[str], content: str) -> list[str]:
    """Which of `terms` a text contains, by their first letters, as the stemmer would see them roughly."""
    lowered = content.lower()
    return [t for t in terms if (t if len(t) < 6 else t[: max(5, len(t) - 3)]) in lowered]
