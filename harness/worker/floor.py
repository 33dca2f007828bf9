"""What no candidate can be faster than: unavoidable traffic over the bandwidth measured on this device.

On a CPU, what a call reads may lie in a cache: there, the bandwidth is that of a copy of as many bytes, over
and over, with room for reads that run faster than copies.
"""

from __future__ import annotations

import time

import torch

from harness.worker.device.driver import cache_bytes, copy_rate, matrix_rate
from harness.worker.inputs import rewrite
from harness.worker.side import ChildFailure
from harness.worker.timing import RESOLUTION_S
from harness.worker.trial import Trial, Verdict, same_bytes

PROBES = 8  # elements of each input that are changed one by one
# That many of eight random elements matter says with 95 % that a share of at least (hits / 8 - this) does.
PROBE_DOUBT = 0.32
PROBE_LIMIT_S = 2.0  # for all probes of one problem
MARGIN = 0.8  # reads alone run faster than the copy that the bandwidth was measured with
CPU_GAIN = 2.5  # the same for caches of a CPU, where the copy also fetches the lines that it writes
CPU_LEAST_BYTES = 1 << 20  # below, the overhead of a copy is what would be measured
SUSPICIOUS = 0.5  # of eager's time; eager's own is possible
CPU_REPEATS = 7
OVERHEAD_S = 5e-5  # an eager call longer than this is more than overhead


def check_floor(trial: Trial) -> None:
    """Raises Verdict for a time that the traffic alone would take longer than."""
    assert trial.result.candidate_ms is not None
    seconds = 1e-3 * trial.result.candidate_ms["median"]
    if trial.device == "cpu":
        problem = _impossible_on_cpu(trial, seconds)
    else:
        problem = impossible(seconds, unavoidable_bytes(trial, cache_bytes()), copy_rate())
    if problem:
        trial.flag("impossible-time", "reject", problem)
        raise Verdict("rejected", f"impossible-time: {problem}")


def look_at_arithmetic(trial: Trial) -> None:
    """Flags a time too short for the reference's products. A better algorithm may need fewer of them."""
    assert trial.result.candidate_ms is not None
    seconds = 1e-3 * trial.result.candidate_ms["median"]
    if seconds >= SUSPICIOUS * 1e-3 * (trial.result.baselines["eager_ms"] or 0.0):
        return
    flops = trial.reference.ask({"op": "flops"}, trial.request.run_limit_s, what="counting operations")[
        "flops"
    ]
    if not flops:
        return
    rate = matrix_rate(trial.device)
    if seconds < MARGIN * flops / rate:
        detail = (
            f"{1e6 * seconds:.3g} µs for what the reference computes in {flops:.3g} operations: a product of "
            f"matrices reaches {rate / 1e12:.3g} TFLOP/s here"
        )
        trial.flag("under-flop-floor", "warning", detail)


def _impossible_on_cpu(trial: Trial, seconds: float) -> str:
    eager = 1e-3 * (trial.result.baselines["eager_ms"] or 0.0)
    if seconds >= SUSPICIOUS * eager:
        return ""
    if seconds <= RESOLUTION_S:
        return "answers as soon as a call that does nothing" if eager > OVERHEAD_S else ""
    moved = unavoidable_bytes(trial, 0)
    return impossible(seconds, moved, _cpu_rate(int(moved))) if moved >= CPU_LEAST_BYTES else ""


def _cpu_rate(size: int) -> float:
    """Bytes per second at most while `size` bytes are read or written."""
    source = torch.ones(size // 2, dtype=torch.uint8)
    target = torch.zeros_like(source)
    times = []
    for _ in range(CPU_REPEATS):
        start = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - start)
    return CPU_GAIN * size / min(times)


def unavoidable_bytes(trial: Trial, cache_bytes: int) -> float:
    """Bytes that every implementation moves to or from memory in a call on cold caches.

    Outputs count once, less what may stay in a cache of `cache_bytes`; what repeats along a dimension, is
    zero, or shares the inputs' memory need not be written. Of each floating input counts the
    share that was seen to matter: single elements are changed, and the reference's result is compared bit by
    bit. What cannot be shown to matter (indices, masked parts, sums that round a change away) does not count.
    """
    outputs = [] if trial.reference.alias == "input" else trial.reference.outputs
    written = sum(_distinct(t) * t.element_size() for t in outputs)
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


def _distinct(output: torch.Tensor) -> int:
    """Elements that are not zero, of one slice along each dimension where all are equal."""
    for dim in range(output.dim()):
        if output.shape[dim] > 1 and bool((output == output.narrow(dim, 0, 1)).all()):
            return _distinct(output.narrow(dim, 0, 1))
    return int(torch.count_nonzero(output))


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
