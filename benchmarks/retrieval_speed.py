"""Times of warm queries in synthetic stores of any size, a tenth of which the target may see.

    python benchmarks/retrieval_speed.py --chunks 1000000 --home DIR

Words follow Zipf's law and vectors are random: how well is not asked, only how fast. One passage a chunk.
A million chunks take 4 GB and some minutes. The index in Chroma is made only where the visible passages are
more than `--exact`: that is 25 minutes of a processor for a million vectors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import insert

from kb import KnowledgeBase, Settings, lexical_index
from kb.embedding import load_embedder
from kb.tables import Chunk, Document, Embedding, Passage, Section, Source, VectorIndexState, partition_of

SCOPES = [f"vendor{i}" for i in range(10)]
WORDS = 30_000  # of the vocabulary
LENGTH = 120  # words of a chunk
CHUNKS = 20  # of a document
BATCH = 1000  # chunks of a transaction, all of one scope


def fill(
    kb: KnowledgeBase,
    chunks: int,
    partitions: Sequence[tuple[str, str]] = tuple(("document", scope) for scope in SCOPES),
    words: Sequence[str] = (),
    metas: Sequence[dict[str, Any]] = ({},),
) -> None:
    """Rows as ingestion would leave them, but for vectors that mean nothing.

    `partitions` are pairs of kind and scope, `words` the commonest words, the others being made up, `metas`
    the documents' front matter in turn. What is stored already stays.
    """
    rng = np.random.default_rng(0)
    share = np.cumsum(1 / np.arange(1, WORDS + 1))
    vocabulary = np.array([*words, *(f"w{i}q" for i in range(WORDS - len(words)))])
    dimension = len(kb.embedder.embed(["x"])[0])
    with kb.session() as session:
        source = Source(key="synthetic", name="synthetic", root="/synthetic")
        session.add(source)
        session.commit()
        first = max(_last(session, "chunk", "pk"), CHUNKS * _last(session, "section", "id"))
    first += -first % CHUNKS
    for start in range(0, chunks, BATCH):
        pks = range(first + start + 1, first + min(start + BATCH, chunks) + 1)
        kind, scope = partitions[start // BATCH % len(partitions)]
        texts = vocabulary[np.searchsorted(share, rng.random((len(pks), LENGTH)) * share[-1])]
        vectors = rng.standard_normal((len(pks), dimension)).astype("<f4")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        rows = _rows(kb.embedder.model_id, (source.id or 0, kind, scope), pks, texts, vectors)
        for document in rows[Document]:
            document["meta"] = metas[document["id"] % len(metas)]
        partition = partition_of(kind, scope)
        with kb.session() as session:
            # What a crash leaves of this store is of no use to anybody.
            session.connection().exec_driver_sql("PRAGMA synchronous=OFF")
            session.connection().exec_driver_sql("PRAGMA cache_size=-400000")
            lexical_index.ensure(session.connection(), kind, scope)
            for table, content in rows.items():
                session.connection().execute(insert(table), content)
            state = session.get(VectorIndexState, partition) or VectorIndexState(partition=partition)
            state.generation, state.count = state.generation + 1, state.count + len(pks)
            session.add(state)
            session.flush()
            lexical_index.settle(session.connection(), [partition])
            session.commit()


def _last(session: Any, table: str, key: str) -> int:
    found = session.connection().exec_driver_sql(f"SELECT ifnull(max({key}), 0) FROM {table}")
    return int(found.scalar_one())


def _rows(
    model: str, whence: tuple[int, str, str], pks: Sequence[int], words: Any, vectors: Any
) -> dict[Any, list[dict[str, Any]]]:
    """The rows of each table. Keys are hashes: rows that belong together lie apart in their indexes."""
    rows: dict[Any, list[dict[str, Any]]] = {t: [] for t in (Document, Section, Chunk, Passage, Embedding)}
    source_id, kind, scope = whence
    plain = Document(
        source_id=source_id, path="", location="", state="embedded", kind=kind, scope=scope
    ).model_dump()
    for i, pk in enumerate(pks):
        number, ordinal = divmod(pk - 1, CHUNKS)
        at, path = number + 1, f"{scope}/{number}.md"
        if not ordinal:
            rows[Document].append(plain | {"id": at, "path": path, "location": f"/synthetic/{path}"})
            rows[Section].append(
                {"id": at, "document_id": at, "ordinal": 0, "heading_path": "H", "start_line": 1,
                 "end_line": CHUNKS}
            )  # fmt: skip
        key = hashlib.sha256(str(pk).encode()).hexdigest()
        rows[Chunk].append(
            {"pk": pk, "id": key, "document_id": at, "section_id": at, "ordinal": ordinal, "scope": scope,
             "kind": kind, "breadcrumb": path, "text": " ".join(words[i]), "start_line": ordinal + 1,
             "end_line": ordinal + 1}
        )  # fmt: skip
        rows[Passage].append(
            {"id": key, "chunk_pk": pk, "partition": partition_of(kind, scope), "ordinal": 0,
             "text": "", "text_hash": key}
        )  # fmt: skip
        rows[Embedding].append({"text_hash": key, "model": model, "vector": vectors[i].tobytes()})
    return rows


def questions(rng: np.random.Generator) -> dict[str, Callable[[], str]]:
    def words(count: int, smallest: float = 1) -> list[str]:
        # As people choose them: seldom the commonest, of which nearly every chunk has each.
        return [f"w{int(w)}q" for w in np.exp(rng.uniform(smallest, 10, count))]

    return {
        "8 words": lambda: " ".join(words(8)),
        "identifier": lambda: "_".join(words(2, 5)) + " fails",
        "64 words": lambda: " ".join(words(64)),
    }


def measure(kb: KnowledgeBase, queries: int, target: str | None) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    started = time.perf_counter()
    by = {hit.why["vectors"] for hit in kb.query("w5q w7q w3000q", target=target).hits} - {None}
    found: dict[str, Any] = {"vectors": sorted(by), "first_s": round(time.perf_counter() - started, 2)}
    for name, ask in questions(rng).items():
        spent = []
        for _ in range(queries):
            text = ask()
            before = time.perf_counter(), time.process_time()
            kb.query(text, target=target)
            spent.append([time.perf_counter() - before[0], time.process_time() - before[1]])
        (wall, cpu50), (wall95, cpu95) = 1e3 * np.percentile(spent, [50, 95], axis=0)
        found[name] = {
            "p50_ms": round(wall, 1), "p95_ms": round(wall95, 1),
            "cpu_p50_ms": round(cpu50, 1), "cpu_p95_ms": round(cpu95, 1),
        }  # fmt: skip
    found["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=100, help="of each kind")
    parser.add_argument("--all", action="store_true", help="without a target: everything is visible")
    parser.add_argument("--exact", type=int, default=Settings().exact_passages)
    parser.add_argument("--home", type=Path, help="where the store is made and kept")
    args = parser.parse_args()
    target = None if args.all else SCOPES[3]
    with tempfile.TemporaryDirectory() as scratch:
        home = args.home or Path(scratch) / "home"
        settings = Settings(home=home, exact_passages=args.exact)
        with KnowledgeBase.open(settings, embedder=load_embedder(), repair=False) as kb:
            if not kb.expected_vectors():
                fill(kb, args.chunks)
            visible = args.chunks // (1 if args.all else len(SCOPES))
            if visible > args.exact:
                kb.rebuild_vectors("is not yet made")
            found = measure(kb, args.queries, target)
    sys.stdout.write(json.dumps({"chunks": args.chunks, "visible": visible, **found}) + "\n")


if __name__ == "__main__":
    main()
