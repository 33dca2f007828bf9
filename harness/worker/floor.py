"""What no candidate can be faster than: unavoidable traffic over the bandwidth measured on this device."""

from __future__ import annotations

import torch

from harness.worker.inputs import rewrite
from harness.worker.side import ChildFailure
from harness.worker.trial import Trial, same_bytes

PROBES = 8  # elements of each input that are changed one by one
# That many of eight random elements matter says with 95 % that a share of at least (hits / 8 - this) does.
PROBE_DOUBT = 0.32
PROBE_LIMIT_S = 2.0  # for all probes of one problem
MARGIN = 0.8  # reads alone run faster than the copy that the bandwidth was measured with


def unavoidable_bytes(trial: Trial, cache_bytes: int) -> float:
    """Bytes that every implementation moves to or from memory in a call on cold caches.

    Outputs count once, less what may stay in a cache of `cache_bytes`. Of each floating input counts the
    share that was seen to matter: single elements are changed, and the reference's result is compared bit by
    bit. What cannot be shown to matter (indices, masked parts, sums that round a change away) does not count.
    """
    written = sum(t.numel() * t.element_size() for t in trial.reference.outputs)
    return max(0.0, written - cache_bytes) + sum(_read_bytes(trial))


def impossible(seconds: float, bytes_moved: float, bytes_per_s: float) -> str:
    """One line where a time is below the floor, else an empty string."""
    floor = MARGIN * bytes_moved / bytes_per_s
    if seconds >= floor:
        return ""
    return (
        f"{1e6 * seconds:.3g} µs for at least {bytes_moved / 1e6:.3g} MB, "
        f"which take {1e6 * floor:.3g} µs at {bytes_per_s / 1e9:.0f} GB/s"
    )


def _read_bytes(trial: Trial) -> list[float]:
    flats = trial.reference.flats[0]
    chosen = [i for i, t in enumerate(flats) if t.is_floating_point() and t.numel() and t.element_size() > 1]
    calls = 2 + PROBES * len(chosen)
    if not trial.takes_edits or trial.mutates or calls * trial.typical_s["eager"] > PROBE_LIMIT_S:
        return []
    seed, kept = trial.seed(), trial.contents(0)
    try:
        base = trial.reference_output(0, seed)
        if not same_bytes(base, trial.reference_output(0, seed)):
            return []  # a sum in changing order: nothing can be told from its bits
        return [
            _matters(trial, flats[i], seed, base) * flats[i].numel() * flats[i].element_size() for i in chosen
        ]
    except ChildFailure as failure:
        if not failure.log:
            raise
        return []
    finally:
        rewrite(flats, kept)


def _matters(trial: Trial, flat: torch.Tensor, seed: int, base: list[torch.Tensor]) -> float:
    """A lower bound of the share of elements that the result depends on."""
    hits = 0
    for _ in range(PROBES):
        position = trial.rng.randrange(flat.numel())
        value = flat[position].clone()
        flat[position] = 3 * value + (1 if value >= 0 else -1)
        trial.call_reference(0, seed)
        flat[position] = value
        hits += not same_bytes(base, trial.reference.outputs)
    return max(0.0, hits / PROBES - PROBE_DOUBT)
