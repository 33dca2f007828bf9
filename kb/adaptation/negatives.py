"""Hard negatives: passages that look like the answer to a question, and are another chunk's.

Those that the model finds near the question, as it is at that moment (Xiong et al. 2021, ANCE), and those
that its words find (Karpukhin et al. 2020, DPR). What is nearly as near as the right passage may be an
answer, too, and is left out (Moreira et al. 2024, NV-Retriever).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kb.adaptation.examples import Pair, StoredPassage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

_NEAREST = 60  # passages of the scope that are looked at
_CHOICE = 40  # of those, from which is drawn
_LEXICAL = 15  # chunks
_LEXICAL_SHARE = 1 / 3
_TOO_NEAR = 0.95  # of the similarity of the right passage
_BLOCK = 1024  # questions


def mine(  # noqa: PLR0917
    pairs: Sequence[Pair],
    passages: Sequence[StoredPassage],
    questions: Vectors,
    answers: Vectors,
    near: Vectors,
    count: int,
    rng: random.Random,
) -> dict[Pair, list[StoredPassage]]:
    """Up to `count` wrong passages for each of `pairs`, a third of them by words.

    Unit vectors: `questions` and `answers` of the pairs, (len(pairs), dimension), and `near` of `passages`.
    """
    import numpy as np

    by_scope: dict[str, list[int]] = defaultdict(list)
    first: dict[int, int] = {}  # of each chunk
    for place, passage in enumerate(passages):
        by_scope[passage.scope].append(place)
        first.setdefault(passage.chunk, place)
    asked: dict[str, list[int]] = defaultdict(list)
    for place, pair in enumerate(pairs):
        asked[pair.scope].append(place)
    limits = _TOO_NEAR * np.einsum("ij,ij->i", questions, answers)
    chunks = np.array([p.chunk for p in passages])
    found: dict[Pair, list[StoredPassage]] = {}
    for scope, places in asked.items():
        members = np.array(by_scope.get(scope, ()), dtype=np.int64)
        for start in range(0, len(places) if len(members) else 0, _BLOCK):
            block = places[start : start + _BLOCK]
            scores = questions[block] @ near[members].T
            depth = min(_NEAREST, len(members))
            top = np.argpartition(-scores, depth - 1, axis=1)[:, :depth]
            for row, place in enumerate(block):
                pair = pairs[place]
                nearest = top[row][np.argsort(-scores[row, top[row]], kind="stable")]
                wrong = (chunks[members[nearest]] != pair.chunk) & (scores[row, nearest] < limits[place])
                candidates = members[nearest[wrong]][:_CHOICE].tolist()
                worded = [first[c] for c in pair.lexical[:_LEXICAL] if c in first and c != pair.chunk]
                worded = [p for p in worded if float(questions[place] @ near[p]) < limits[place]]
                drawn = rng.sample(worded, min(len(worded), round(count * _LEXICAL_SHARE)))
                drawn += rng.sample(candidates, min(len(candidates), count - len(drawn)))
                found[pair] = [passages[p] for p in dict.fromkeys(drawn)]
    return found
