"""Train an adapter from a file of pairs: torch, transformers and sentence-transformers are needed, no store.

    python benchmarks/adapter/train.py pairs.jsonl.gz MODEL_FOLDER OUT_FOLDER [--epochs 9 --negatives 3 …]

Writes OUT_FOLDER/<model>.safetensors and prints, as JSON, what it gains on the held-out pairs. By default the
recipe is that of `kernelevolve kb adapt` on this machine, see `kb/adaptation/training.py`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

from kb.adaptation.compare import compare
from kb.adaptation.examples import divide, read_examples
from kb.adaptation.lowrank import write_factors
from kb.adaptation.training import Recipe, facts_of, recipe_here, train
from kb.embedding import SentenceTransformerEmbedder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs_file", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    for field in dataclasses.fields(Recipe):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(getattr(Recipe(), field.name)))
    args = parser.parse_args()
    given = {f.name: getattr(args, f.name) for f in dataclasses.fields(Recipe)}
    recipe = dataclasses.replace(recipe_here(), **{k: v for k, v in given.items() if v is not None})

    pairs, passages = read_examples(args.pairs_file)
    taught, held = divide(pairs, recipe.pairs, auxiliary=recipe.auxiliary, seed=recipe.seed, held=len(pairs))
    base = SentenceTransformerEmbedder(args.model)
    started = time.perf_counter()

    def progress(done: int, total: int) -> None:
        if done % 50 == 0 or done == total:
            sys.stderr.write(f"{done} of {total} steps, {time.perf_counter() - started:.0f} s\n")

    factors = train(base.load(), taught, recipe, progress, passages)
    took = time.perf_counter() - started
    file = args.out / f"{base.model_id}.safetensors"
    write_factors(file, factors, facts_of(recipe, len(taught)))
    adapted = SentenceTransformerEmbedder(args.model, adapters=[file])
    overall, by_kind = compare(base, adapted, held)
    found = {"seconds": round(took), "pairs": len(taught), "all": overall.to_json()}
    sys.stdout.write(json.dumps(found | {kind: c.to_json() for kind, c in by_kind.items()}) + "\n")


if __name__ == "__main__":
    main()
