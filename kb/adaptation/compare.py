"""Two embedding models on the same held-out pairs: which finds the passages that answer?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kb.adaptation.pairs import Pair

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
    before: Embedder,
    after: Embedder,
    held: Sequence[Pair],
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Comparison, dict[str, Comparison]]:
    """Overall, every kind counting alike, and by kind. A question's passage is ranked among all held-out
    passages of its scope.
    """
    import numpy as np

    total = 4 * len(held)
    ranks = []
    for number, model in enumerate((before, after)):

        def step(done: int, offset: int = 2 * number * len(held)) -> None:
            if progress is not None:
                progress(offset + done, total)

        ranks.append(_ranks(model, held, step))
    gains = [np.where(r <= _DEPTH, 1 / r, 0.0) for r in ranks]
    kinds = np.array([p.kind for p in held])
    by_kind = {
        kind: _comparison(*(r[kinds == kind] for r in ranks), *(g[kinds == kind] for g in gains), None)
        for kind in dict.fromkeys(kinds.tolist())
    }
    weights = np.array([1.0 / np.count_nonzero(kinds == kind) for kind in kinds])
    return _comparison(*ranks, *gains, weights / weights.sum()), by_kind


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
        rivals = np.unique(np.flatnonzero((scopes == scopes[i]) & (chunks != chunks[i]) & (texts != texts[i])))
        scores = passages @ questions[i]
        best = dict(zip(texts[rivals], scores[rivals], strict=True))  # one text is one rival
        ranks[i] = 1 + sum(score > scores[i] for score in best.values())
    return ranks


def _comparison(
    rank_before: NDArray[np.float64],
    rank_after: NDArray[np.float64],
    gain_before: NDArray[np.float64],
    gain_after: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
) -> Comparison:
    import numpy as np

    n = len(rank_before)
    weights = np.full(n, 1 / n) if weights is None else weights
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES) * weights
    means = drawn @ (gain_after - gain_before) / drawn.sum(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])

    def mean(values: NDArray[np.float64]) -> float:
        return round(float(weights @ values), 4)

    return Comparison(
        pairs=n,
        recall_before=mean((rank_before <= _DEPTH).astype(float)),
        recall_after=mean((rank_after <= _DEPTH).astype(float)),
        mrr_before=mean(gain_before),
        mrr_after=mean(gain_after),
        gain=mean(gain_after - gain_before),
        gain_ci=(round(float(low), 4), round(float(high), 4)),
    )
