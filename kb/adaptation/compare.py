"""Two embedding models on the same held-out pairs: which finds the passages that answer?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kb.adaptation.examples import Pair

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kb.embedding import Embedder

_DEPTH = 10
_RESAMPLES = 2000
_BLOCK = 256  # texts between two reports of progress


@dataclass(frozen=True)
class Comparison:
    """Mean figures before and after. `gain`: of the reciprocal rank within the first ten (1 / rank, else 0),
    with its 95 % interval over the questions (bootstrap of the paired differences).
    """

    pairs: int
    recall_before: float
    recall_after: float
    mrr_before: float
    mrr_after: float
    gain: float
    gain_ci: tuple[float, float]

    @property
    def better(self) -> bool:
        return self.gain_ci[0] > 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    old: Embedder,
    new: Embedder,
    held: Sequence[Pair],
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Comparison, dict[str, Comparison]]:
    """Overall, every kind counting alike, and by kind. A question's passage is ranked among all held-out
    passages of its scope.
    """
    import numpy as np

    total = 4 * len(held)
    ranks = []
    for number, model in enumerate((old, new)):

        def step(done: int, offset: int = 2 * number * len(held)) -> None:
            if progress is not None:
                progress(offset + done, total)

        ranks.append(_ranks(model, held, step))
    before, after = ranks
    kinds = np.array([p.kind for p in held])
    by_kind = {
        kind: _comparison(before[kinds == kind], after[kinds == kind])
        for kind in dict.fromkeys(kinds.tolist())
    }
    weights = np.array([1.0 / np.count_nonzero(kinds == kind) for kind in kinds])
    return _comparison(before, after, weights / weights.sum()), by_kind


def _ranks(model: Embedder, held: Sequence[Pair], step: Callable[[int], None]) -> NDArray[np.float64]:
    """From 1; passages of the question's own chunk and repetitions of its passage do not count against it."""
    import numpy as np

    done = 0

    def embed(texts: list[str]) -> NDArray[np.float32]:
        nonlocal done
        parts = []
        for i in range(0, len(texts), _BLOCK):
            parts.append(model.embed(texts[i : i + _BLOCK]))
            done += len(parts[-1])
            step(done)
        return np.concatenate(parts)

    questions, passages = embed([p.question for p in held]), embed([p.passage for p in held])
    scopes, chunks = np.array([p.scope for p in held]), np.array([p.chunk for p in held])
    texts = np.array([p.passage for p in held])
    ranks = np.empty(len(held))
    for i in range(len(held)):
        rivals = np.flatnonzero((scopes == scopes[i]) & (chunks != chunks[i]) & (texts != texts[i]))
        scores = passages @ questions[i]
        best = dict(zip(texts[rivals], scores[rivals], strict=True))  # one text is one rival
        ranks[i] = 1 + sum(score > scores[i] for score in best.values())
    return ranks


def _comparison(
    before: NDArray[np.float64], after: NDArray[np.float64], weights: NDArray[np.float64] | None = None
) -> Comparison:
    """Of ranks, weighted; by default all alike."""
    import numpy as np

    n = len(before)
    weights = np.full(n, 1 / n) if weights is None else weights
    worth = [np.where(ranks <= _DEPTH, 1 / ranks, 0.0) for ranks in (before, after)]
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES) * weights
    means = drawn @ (worth[1] - worth[0]) / drawn.sum(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])

    def mean(values: NDArray[np.float64]) -> float:
        return round(float(weights @ values), 4)

    return Comparison(
        pairs=n,
        recall_before=mean((before <= _DEPTH).astype(float)),
        recall_after=mean((after <= _DEPTH).astype(float)),
        mrr_before=mean(worth[0]),
        mrr_after=mean(worth[1]),
        gain=mean(worth[1] - worth[0]),
        gain_ci=(round(float(low), 4), round(float(high), 4)),
    )
