"""Write what an adapter is trained on into a file, for a machine that has a GPU and no knowledge base.

    python benchmarks/adapter/export_pairs.py benchmarks/adapter/questions.jsonl pairs.jsonl.gz

The store is that of KERNELEVOLVE_HOME: pairs of its documents and of the questions, held-out ones among them,
with the chunks that the words of each question find, and all passages. `train.py` reads it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kb import KnowledgeBase
from kb.adaptation.adapt import adaptable
from kb.adaptation.examples import write_examples
from kb.adaptation.pairs import read_questions, stored_pairs
from kb.adaptation.rivals import stored_passages, with_lexical


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("questions", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    with KnowledgeBase.open() as kb:
        pairs = stored_pairs(kb) + read_questions(kb, args.questions, adaptable(kb))
        passages = stored_passages(kb)
        write_examples(args.out, with_lexical(kb, pairs), passages)
    sys.stdout.write(f"{len(pairs)} pairs and {len(passages)} passages in {args.out}\n")


if __name__ == "__main__":
    main()
