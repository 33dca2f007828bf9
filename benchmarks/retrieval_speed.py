"""Times of warm queries in synthetic stores of any size, a tenth of which the target may see.

    python benchmarks/retrieval_speed.py --chunks 100000

Words follow Zipf's law and vectors are random: how well is not asked, only how fast. One passage a chunk.
Chroma is built only where the visible tenth is larger than `--exact` passages.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sqlalchemy import insert

from kb import KnowledgeBase, Settings
from kb.embedding import load_embedder
from kb.tables import Chunk, Document, Embedding, Passage, Section, Source, VectorIndexState, partition_of

SCOPES = [f"vendor{i}" for i in range(10)]
WORDS = 30_000  # of the vocabulary
LENGTH = 120  # words of a chunk
BLOCK = 2000  # chunks of a document and transaction


def fill(kb: KnowledgeBase, chunks: int) -> None:
    """Rows as ingestion would leave them, but for vectors that mean nothing."""
    rng = np.random.default_rng(0)
    share = np.cumsum(1 / np.arange(1, WORDS + 1))
    dimension = len(kb.embedder.embed(["x"])[0])
    with kb.session() as session:
        session.add(Source(id=1, key="synthetic", name="synthetic", root="/synthetic"))
        session.commit()
    for block in range(0, chunks, BLOCK):
        number = block // BLOCK
        scope = SCOPES[number % len(SCOPES)]
        size = min(BLOCK, chunks - block)
        words = np.searchsorted(share, rng.random((size, LENGTH)) * share[-1])
        vectors = rng.standard_normal((size, dimension)).astype("<f4")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        key = [f"{block + i:064x}" for i in range(size)]
        path = f"{number}.md"
        document = Document(
            id=number + 1, source_id=1, path=path, location=path, state="embedded", scope=scope
        )
        section = Section(
            id=number + 1, document_id=number + 1, ordinal=0, heading_path="H", start_line=1, end_line=BLOCK
        )
        common = {"document_id": number + 1, "section_id": number + 1, "scope": scope, "kind": "document"}
        rows = [
            {"pk": block + i, "id": key[i], "ordinal": i, "breadcrumb": path, "start_line": i, "end_line": i,
             "text": " ".join(f"w{w}q" for w in words[i])} | common
            for i in range(size)
        ]  # fmt: skip
        partition = partition_of("document", scope)
        passages = [
            {"id": key[i], "chunk_pk": block + i, "partition": partition, "ordinal": 0, "text": "",
             "text_hash": key[i]}
            for i in range(size)
        ]  # fmt: skip
        model = kb.embedder.model_id
        cached = [{"text_hash": key[i], "model": model, "vector": vectors[i].tobytes()} for i in range(size)]
        with kb.session() as session:
            session.add(document)
            session.flush()
            session.add(section)
            session.flush()
            for table, content in ((Chunk, rows), (Passage, passages), (Embedding, cached)):
                session.connection().execute(insert(table), content)
            state = session.get(VectorIndexState, partition) or VectorIndexState(partition=partition)
            state.generation, state.count = state.generation + 1, state.count + size
            session.add(state)
            session.commit()


def measure(kb: KnowledgeBase, queries: int, target: str | None) -> dict[str, object]:
    rng = np.random.default_rng(1)
    # Words as people choose them: seldom the commonest, of which a third of all chunks has each.
    texts = [" ".join(f"w{int(w)}q" for w in np.exp(rng.uniform(1, 10, 8))) for _ in range(queries)]
    first = time.perf_counter()
    by = {hit.why["vectors"] for hit in kb.query(texts[0], target=target).hits} - {None}
    times = []
    for text in texts:
        started = time.perf_counter()
        kb.query(text, target=target)
        times.append(1e3 * (time.perf_counter() - started))
    p50, p95 = np.percentile(times, [50, 95])
    warm_up = time.perf_counter() - first - sum(times) / 1e3
    return {
        "vectors": sorted(by),
        "first_s": round(warm_up, 2),
        "p50_ms": round(p50, 1),
        "p95_ms": round(p95, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--exact", type=int, default=50_000, help="KERNELEVOLVE_EXACT_PASSAGES")
    parser.add_argument("--home", type=Path, help="where the store is made and kept")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = args.home or Path(scratch) / "home"
        settings = Settings(home=home, exact_passages=args.exact)
        with KnowledgeBase.open(settings, embedder=load_embedder(), repair=False) as kb:
            if not kb.expected_vectors():
                fill(kb, args.chunks)
            if args.chunks / len(SCOPES) > args.exact:
                kb.rebuild_vectors("is not yet made")
            found = measure(kb, args.queries, SCOPES[3])
    sys.stdout.write(json.dumps({"chunks": args.chunks, "visible": 1 / len(SCOPES), **found}) + "\n")


if __name__ == "__main__":
    main()
