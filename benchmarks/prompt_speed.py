"""Time of a prompt in a store of 100,000 chunks that the target may all see, beside the curated library.

    python benchmarks/prompt_speed.py --home DIR --prompts 100

Words of the library are the commonest ones of the made-up documents, so that every question has thousands of
hits; vectors are random. Half of the documents name a bottleneck and a phase. Steps alternate between drafts,
repairs and improvements at all depths, as in a search: every one is another.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from retrieval_speed import fill

from ingest import ingest_library
from kb import KnowledgeBase, Settings
from kb.embedding import load_embedder
from prompts import PromptRequest, Synthesizer

KINDS = (
    "document",
    "document",
    "document",
    "guidance",
    "guidance",
    "hardware",
    "kernel",
    "constraint",
    "trace",
)
SCOPES = ("generic", "cpu")
METAS: list[dict[str, Any]] = [
    {}, {"bottleneck": ["memory"], "phase": "optimise"}, {}, {"bottleneck": ["compute", "latency"]},
    {}, {"bottleneck": ["incorrect"], "phase": "debug"}, {}, {"phase": "draft"},
]  # fmt: skip
OPERATORS = (
    "_softmax", "native_layer_norm", "mm", "addmm", "gelu", "silu", "mul", "add", "sum", "mean", "rsqrt",
    "exp", "transpose", "max_pool2d", "sigmoid", "cumsum", "where", "log", "amax", "div",
)  # fmt: skip
DIAGNOSES: list[dict[str, Any]] = [
    {
        "bottleneck": "memory",
        "evidence": ["8 of 20 GB/s"],
        "actions": ["fewer-passes: every extra pass costs"],
    },
    {"bottleneck": "compute", "evidence": [], "actions": ["wider-vectors: use every lane"]},
    {
        "bottleneck": "compile_error",
        "evidence": [],
        "error": "use of undeclared identifier _mm256_setzero_ps",
    },
    {"bottleneck": "unknown"},
]


def library_words(root: Path) -> list[str]:
    """The words of the curated library, the commonest first."""
    counts = Counter(
        w for path in sorted(root.rglob("*.md")) for w in re.findall(r"[a-z_]{3,}", path.read_text())
    )
    return [word for word, _ in counts.most_common(4000)]


def step(rng: random.Random, number: int, problem: str) -> PromptRequest:
    """A step of a search as the engine asks for it."""
    x = {"name": "x", "shape": [rng.choice((64, 512, 4096)), 1024], "dtype": "float32", "stride": [1024, 1]}
    ops = rng.sample(OPERATORS, rng.randint(1, 8))
    nodes = [
        {"name": f"n{i}", "op": f"aten.{op}.default", "args": [], "outputs": [x]} for i, op in enumerate(ops)
    ]
    facts = {"name": f"problem {number}", "inputs": [x], "outputs": [x], "nodes": nodes, "eager_ms": 3.0}
    request = PromptRequest(
        problem, facts, "cpu", {"languages": ["cpp", "triton"], "interpreted": "triton"}, step=number
    )
    depth = rng.randrange(5)
    if not depth:
        return request
    failed = [{"step": i, "outcome": "incorrect", "hypothesis": f"{ops[0]} blocks", "error": "max error 3"}
              for i in range(rng.randrange(4))]  # fmt: skip
    parent = {"step": 1, "source": problem * 3, "status": "correct", "hypothesis": "one pass", "speedup": 1.2}
    return replace(request, depth=depth, parent=parent, diagnosis=rng.choice(DIAGNOSES), failed=failed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--budget", type=int, default=16_000)
    parser.add_argument("--home", type=Path, required=True, help="where the store is made and kept")
    args = parser.parse_args()
    with KnowledgeBase.open(Settings(home=args.home), embedder=load_embedder(), repair=False) as kb:
        ingest_library(kb)
        with kb.session() as session:
            stored = session.connection().exec_driver_sql("SELECT count(*) FROM chunk").scalar_one()
        if stored < args.chunks:
            partitions = [(kind, scope) for kind in KINDS for scope in SCOPES]
            fill(kb, args.chunks - stored, partitions, library_words(kb.library_path()), METAS)
        problem = (kb.library_path() / "skills" / "softmax-resident" / "problem.py").read_text()
        rng, synthesizer = random.Random(0), Synthesizer(kb)
        started = time.perf_counter()
        synthesizer.synthesize(step(rng, 0, problem))
        first_s = time.perf_counter() - started
        spent, passages, tokens = [], [], []
        for number in range(1, args.prompts + 1):
            request = replace(step(rng, number, problem), budget_tokens=args.budget)
            before = time.perf_counter(), time.process_time()
            record = synthesizer.synthesize(request)
            spent.append((time.perf_counter() - before[0], time.process_time() - before[1]))
            passages.append(len(record.provenance))
            tokens.append(record.tokens)
    (wall50, cpu50), (wall95, cpu95) = 1e3 * np.percentile(spent, [50, 95], axis=0)
    found = {
        "chunks": args.chunks, "first_s": round(first_s, 2), "p50_ms": round(wall50), "p95_ms": round(wall95),
        "cpu_p50_ms": round(cpu50), "cpu_p95_ms": round(cpu95), "load": round(os.getloadavg()[0], 1),
        "passages": float(np.mean(passages)), "tokens": float(np.mean(tokens)),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }  # fmt: skip
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
