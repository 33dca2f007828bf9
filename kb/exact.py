"""Exact vector search in memory: for scopes of which reading all vectors costs less than opening Chroma.

100,000 vectors are read from SQL in 0.6 s and compared in 10 ms, in 150 MB. Chroma takes more than two
seconds to be imported and to read its graph, in as much memory, and 8 ms afterwards. SQL is the truth: there
is nothing here that could be out of step, as a partition is read anew when its generation has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kb.errors import IndexUnavailable

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from kb.base import KnowledgeBase
    from kb.embedding import Embedder, Vectors

# Partitions are kept until this many times the largest scope is held; who asks about many scopes reads again.
_KEPT = 2


@dataclass(frozen=True)
class _Partition:
    model: str
    generation: int
    ids: list[str]
    chunks: Any  # (len(ids),) int64: the pk of the chunk that the passage is part of
    vectors: Vectors  # (len(ids), dimension)


class ExactSearch:
    """The nearest passages among all of some partitions. May be used by several threads."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self._kb = kb
        self._lock = threading.Lock()
        self._held: dict[str, _Partition] = {}  # the last used at the end

    def serves(self, passages: int) -> bool:
        """Whether a scope of so many passages is searched here instead of in Chroma."""
        return passages <= self._kb.settings.exact_passages

    def search(
        self,
        embedder: Embedder,
        partitions: Sequence[str],
        vector: Vectors,
        limit: int,
        allowed: Callable[[Any], Any] | None = None,
    ) -> list[tuple[str, float]]:
        """(passage id, cosine similarity) to `vector` of `embedder`, best first, ties by id. `allowed` says
        of chunks (n,) which may be found: (n,), bool.

        Raises IndexUnavailable where vectors are damaged, EmbeddingFailed where missing ones cannot be made.
        """
        import numpy as np

        with self._lock:
            held = [p for p in self._partitions(embedder, partitions) if p.ids]
        hits: list[tuple[str, float]] = []
        for partition in held:
            # Not `@`: BLAS wakes its threads for this, which on a busy machine costs thirty times as much.
            scores = np.einsum("ij,j->i", partition.vectors, vector)
            # Sums of products differ in their last digits from machine to machine; the order must not.
            scores = np.round(scores, 6)
            chosen = np.arange(len(scores)) if allowed is None else np.flatnonzero(allowed(partition.chunks))
            if limit < len(chosen):
                floor = np.partition(scores[chosen], len(chosen) - limit)[len(chosen) - limit]
                chosen = chosen[scores[chosen] >= floor]
            hits += [(partition.ids[i], float(scores[i])) for i in chosen]
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:limit]

    def _partitions(self, embedder: Embedder, names: Sequence[str]) -> list[_Partition]:
        model = embedder.model_id
        for _ in range(2):
            with self._kb.session() as session:
                connection = session.connection()
                connection.exec_driver_sql("BEGIN")  # one state of the database for all that follows
                found = self._read(connection, model, names)
            if found is not None:
                return found
            self._complete(embedder, names)
        raise IndexUnavailable("passages have no vectors", "run `kernelevolve kb rebuild`")

    def _read(self, connection: Connection, model: str, names: Sequence[str]) -> list[_Partition] | None:
        """None where vectors of this model are missing."""
        from kb.documents import expected_vectors

        expected = expected_vectors(connection)
        found = []
        for name in names:
            generation, count = expected.get(name, (0, 0))
            kept = self._held.pop(name, None)
            if kept is None or (kept.model, kept.generation) != (model, generation):
                kept = _Partition(model, generation, *_vectors(connection, model, name))
            if len(kept.ids) != count:
                return None
            self._held[name] = kept
            found.append(kept)
        room = _KEPT * self._kb.settings.exact_passages
        while len(self._held) > len(names) and sum(len(p.ids) for p in self._held.values()) > room:
            del self._held[next(iter(self._held))]
        return found

    def _complete(self, embedder: Embedder, names: Sequence[str]) -> None:
        """Embed what another model has embedded, or what lost its vector."""
        from kb.documents import read_vectors

        self._kb.notice("passages without a vector of this model are being embedded")
        for name in names:
            for _ in read_vectors(self._kb, embedder, name):
                pass


def _vectors(connection: Connection, model: str, partition: str) -> tuple[list[str], Any, Vectors]:
    """Ids, chunks and vectors in any order: SQL would drag them through its sorter."""
    import numpy as np

    rows = connection.exec_driver_sql(
        "SELECT passage.id, passage.chunk_pk, embedding.vector FROM passage JOIN embedding USING (text_hash)"
        ' WHERE passage."partition" = ? AND embedding.model = ?',
        (partition, model),
    )
    ids: list[str] = []
    chunks: list[int] = []
    vectors = bytearray()  # grows in place: a list of blobs would hold everything twice
    lengths = set()
    for passage_id, chunk_pk, vector in rows:
        ids.append(passage_id)
        chunks.append(chunk_pk)
        vectors += vector
        lengths.add(len(vector))
    if len(lengths) > 1:
        raise IndexUnavailable(
            "stored vectors of one model differ in length", "run `kernelevolve kb check`, then `kb rebuild`"
        )
    matrix = np.frombuffer(vectors, dtype="<f4").reshape(len(ids), -1 if ids else 0)
    return ids, np.array(chunks, dtype=np.int64), matrix
