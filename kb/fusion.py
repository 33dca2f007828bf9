"""One score from what the two kinds of search know of a chunk.

Scores and not ranks: BM25 says by its height whether the words are rare ones, and a cosine whether anything
is near at all; ranks forget both. Three terms, each nothing for what its search did not find:

    BM25 / ln(1 + chunks)     a rare word counts alike in small and large stores
    SIMILARITY x (cosine of the best passage - the lowest such of a chunk that was found)
    COVERAGE x (share of the question's words that are there at all, weighed by rarity)

The weights are those that rank best for questions that a language model wrote about a tenth of the documents
of eight vendors' manuals (benchmarks/adapter.md), a range of two around each being as good.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

SIMILARITY = 20.0
COVERAGE = 4.0
CREDIT = 6.0  # of a prior between -1 and 1, where one is asked for


@dataclass
class Candidate:
    """What is known of one chunk before it is loaded: None where a search did not find it.

    `bm25` and `coverage` (0 to 1) of the lexical search; `similarity`, the cosine of its best passage, with
    what found it in `searched_by`, "exact" or "chroma".
    """

    bm25: float | None = None
    coverage: float | None = None
    similarity: float | None = None
    searched_by: str | None = None
    credit: float = 0.0
    score: float = 0.0


def fuse(candidates: Iterable[Candidate], chunks: int) -> None:
    """Set every score, larger being better. `chunks`: how many were searched."""
    found = list(candidates)
    floor = min((c.similarity for c in found if c.similarity is not None), default=0.0)
    scale = math.log(1 + max(1, chunks))
    for candidate in found:
        lexical = (candidate.bm25 or 0.0) / scale + COVERAGE * (candidate.coverage or 0.0)
        near = 0.0 if candidate.similarity is None else candidate.similarity - floor
        candidate.score = lexical + SIMILARITY * near
