"""Medians, quantiles and a bootstrap interval of a ratio of medians, without any library."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

RESAMPLES = 1000


def summary(samples_s: Sequence[float]) -> dict[str, float]:
    """Median, p05 and p95 in milliseconds, and the number of samples (in seconds)."""
    ordered = sorted(1e3 * s for s in samples_s)
    return {
        "median": statistics.median(ordered),
        "p05": quantile(ordered, 0.05),
        "p95": quantile(ordered, 0.95),
        "n": len(ordered),
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation in a sorted, non-empty sequence."""
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def ratio_interval(
    numerator: Sequence[Sequence[float]], denominator: Sequence[Sequence[float]], seed: int = 0
) -> tuple[float, float, float]:
    """Ratio of medians and its 95 % bootstrap interval (2.5 and 97.5 % quantiles).

    Both arguments are lists of blocks measured in pairs, one right after the other: a resample draws pairs of
    blocks, so that what slowed both at once cancels, and then draws samples within each.
    """
    return weighted_geometric_mean([(numerator, denominator)], [1.0], seed)


def weighted_geometric_mean(
    pairs: Sequence[tuple[Sequence[Sequence[float]], Sequence[Sequence[float]]]],
    weights: Sequence[float],
    seed: int = 0,
) -> tuple[float, float, float]:
    """Of ratios measured independently, each as in `ratio_interval`: the mean and its 95 % interval.

    One bootstrap over all of them: each resample draws every ratio anew, independently of the others, and
    takes the mean of what was drawn.
    """
    rng = random.Random(seed)
    total = sum(weights)

    def mean(ratios: Sequence[float]) -> float:
        return math.exp(sum(w * math.log(r) for w, r in zip(weights, ratios, strict=True)) / total)

    drawn = sorted(mean([_resampled(rng, *pair) for pair in pairs]) for _ in range(RESAMPLES))
    center = mean([statistics.median(_flat(a)) / statistics.median(_flat(b)) for a, b in pairs])
    return center, quantile(drawn, 0.025), quantile(drawn, 0.975)


def _resampled(
    rng: random.Random, numerator: Sequence[Sequence[float]], denominator: Sequence[Sequence[float]]
) -> float:
    """The ratio of medians of one resample."""
    pairs = list(zip(numerator, denominator, strict=True))
    drawn = rng.choices(pairs, k=len(pairs))
    top = [x for block, _ in drawn for x in rng.choices(block, k=len(block))]
    bottom = [x for _, block in drawn for x in rng.choices(block, k=len(block))]
    return statistics.median(top) / statistics.median(bottom)


def _flat(blocks: Sequence[Sequence[float]]) -> list[float]:
    return [x for block in blocks for x in block]
