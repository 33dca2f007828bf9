"""Are questions of a benchmark, or paraphrases of them, among those that an adapter was trained on?

    python benchmarks/adapter/leakage.py BENCHMARK.jsonl benchmarks/adapter/questions.jsonl

For each benchmark query the nearest training question, by cosine of the bundled model before it is adapted.
Fails where one is nearer than `--limit`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from kb.benchmark import read_benchmark
from kb.embedding import model_folder, open_model

LIMIT = 0.6  # at which questions begin to ask for the same fact; about the same subject they reach 0.59


def nearest(queries: list[str], questions: list[str]) -> list[tuple[float, str, str]]:
    """(cosine, query, question), one for each query, nearest first."""
    model = open_model(model_folder(""))
    asked, learnt = model.embed(queries), model.embed(questions)
    similarity = asked @ learnt.T
    found = [
        (float(row.max()), query, questions[int(np.argmax(row))])
        for query, row in zip(queries, similarity, strict=True)
    ]
    return sorted(found, reverse=True)


def read_learnt(file: Path) -> list[str]:
    """All questions of a file as `kb adapt --questions` takes it."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [question for line in lines if line.strip() for question in json.loads(line)["q"]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("benchmark", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--show", type=int, default=10, help="so many of the nearest")
    args = parser.parse_args()
    queries = [query.text for query in read_benchmark(args.benchmark)]
    found = nearest(queries, read_learnt(args.questions))
    for similarity, query, question in found[: args.show]:
        sys.stdout.write(f"{similarity:.3f}  {query}\n       {question}\n")
    near = sum(similarity >= args.limit for similarity, _, _ in found)
    sys.stdout.write(f"{near} of {len(found)} queries have a question at {args.limit} or nearer\n")
    sys.exit(1 if near else 0)


if __name__ == "__main__":
    main()
