"""Inputs that a caller may pass besides those that the problem draws: other memory layouts, the sizes that
META names, and sizes that the judge derives.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from harness.worker.admission import connect, look_at_problem, renew
from harness.worker.compare import Comparison
from harness.worker.rounds import Rounds, compare_all
from harness.worker.side import KERNEL_FAULTS, ChildFailure, Mismatch
from harness.worker.stats import weighted_geometric_mean
from harness.worker.trial import LOAD_LIMIT_S, Ratio, Trial, Verdict, all_finite
from harness.worker.values import describe_layout, layout_bytes, plain_values, skeleton

Tensors = list[torch.Tensor]
Family = list[tuple[int, int]]  # tensor and dimension: all of one size, changed together

LARGE = 1 << 29  # bytes of one input set from which on nothing is derived
# Only what is grossly wrong counts for sizes that the author did not name.
GROSS = 20.0
MAX_FAMILIES, MAX_TRIED = 3, 12
BUDGET_S = 6.0
SLOW_SHARE = 0.1  # of the time limit: a reference slower than that is not run on more


def look_at_other_inputs(trial: Trial, judge_shape: Callable[[Trial], None]) -> None:
    """To be called last: afterwards both sides hold other inputs, and a candidate may have died of them.

    Raises Mismatch for a wrong result in another layout or for sizes that META names; Verdict for one that is
    silently wrong for all others.
    """
    figures = [_figures(trial)]
    if trial.stable or trial.stateful:
        more, tensors = _drawn(trial), _drawn(trial)  # the slot holds `tensors` from here on
        try:
            _other_layouts(trial, tensors)
        except _Broken as broken:  # that the problem never draws such inputs is said, not held against it
            trial.flag("layout-specialised", "warning", str(broken)[:300])
            if len(trial.shapes) == 1:
                return
        if len(trial.shapes) == 1 and trial.stable:
            _derived_sizes(trial, tensors, more)
    ratios = [trial.ratios]
    for number in range(1, len(trial.shapes)):
        trial.begin_shape(number)
        look_at_problem(trial)
        connect(trial)
        judge_shape(trial)
        figures.append(_figures(trial))
        ratios.append(trial.ratios)
    if len(figures) > 1:
        _combine(trial, figures, ratios)


def _drawn(trial: Trial) -> Tensors:
    trial.fresh(0)
    return [view.clone() for view in trial.reference.slots[0].views(trial.layout)]


# -- sizes that META names -----------------------------------------------------------------------------


def _figures(trial: Trial) -> dict[str, Any]:
    result, (name, weight) = trial.result, trial.shapes[trial.shape]
    return {
        "name": name,
        "weight": weight,
        "speedup": result.speedup,
        "speedup_ci": result.speedup_ci,
        "baselines": dict(result.baselines),
        "candidate_ms": result.candidate_ms,
    }


def _combine(trial: Trial, figures: list[dict[str, Any]], ratios: Sequence[dict[str, Ratio]]) -> None:
    """The whole speedup; times stay those of the file's own sizes.

    What an interval is widened by is no chance that would average out: the mean's is the weighted mean of it.
    """
    result = trial.result
    result.per_shape = figures
    result.baselines, result.candidate_ms = dict(figures[0]["baselines"]), figures[0]["candidate_ms"]
    if not result.timed:
        return
    weights = [figure["weight"] for figure in figures]
    for name in [n for n in result.speedups if all(n in one for one in ratios)]:
        pairs = [one[name][:2] for one in ratios]
        mean, low, high = weighted_geometric_mean(pairs, weights, trial.seed())
        doubts = sum(w * math.log1p(one[name][2]) for w, one in zip(weights, ratios, strict=True))
        widened = math.exp(doubts / sum(weights))
        result.speedups[name] = {"speedup": mean, "lo": low / widened, "hi": high * widened}
    own = result.speedups[trial.request.baseline]
    result.speedup, result.speedup_ci = own["speedup"], (own["lo"], own["hi"])
    result.win = own["lo"] > 1.0


# -- other layouts -------------------------------------------------------------------------------------


def _other_layouts(trial: Trial, tensors: Tensors) -> None:
    """The same values with other strides: the candidate agrees, or it refuses."""
    seed = trial.seed()
    if trial.stateful:
        renew(trial)
    expected = trial.reference_output(0, seed)
    usual = [entry["stride"] for entry in trial.layout]
    for name, layout in _layouts(tensors).items():
        if [entry["stride"] for entry in layout] == usual or layout_bytes(layout) > LARGE:
            continue
        _place(trial, tensors, layout)
        trial.reference.map_output(trial.output_structure, trial.output_layout, LOAD_LIMIT_S)
        if not _same_output(trial, seed, expected):
            continue
        _connect_candidate(trial)
        try:
            _call_both(trial, f"the same values in another memory layout: {name}")
        except ChildFailure as failure:
            if failure.side is trial.reference or failure.kind in KERNEL_FAULTS:
                raise
            if not _refused(trial, failure):
                raise _Broken(f"for inputs in another memory layout ({name}): {failure}") from failure
            detail = f"refuses inputs in another memory layout ({name}): {failure}"
            trial.flag("layout-specialised", "info", detail[:300])
            return


def _same_output(trial: Trial, seed: int, expected: Tensors) -> bool:
    """Whether the reference takes other strides, and does not look at them."""
    if trial.stateful:
        renew(trial)
    try:
        mine = trial.reference_output(0, seed)
    except ChildFailure as failure:
        if failure.log:
            return False
        raise
    return not compare_all(trial, mine, expected, trial.tolerance.widened(GROSS)).problem


def _layouts(tensors: Tensors) -> dict[str, list[dict[str, Any]]]:
    transposed, gaps = [], []
    for tensor in tensors:
        turned = torch.empty(tensor.shape[::-1], dtype=tensor.dtype, device="meta")
        transposed.append(turned.permute(*range(turned.dim())[::-1]))
        spread = torch.empty((*tensor.shape, 2), dtype=tensor.dtype, device="meta")
        gaps.append(spread.select(-1, 0))
    return {
        "transposed": describe_layout(transposed, contiguous=False),
        "every second element": describe_layout(gaps, contiguous=False),
    }


# -- sizes that nobody named ---------------------------------------------------------------------------


def _derived_sizes(trial: Trial, tensors: Tensors, more: Tensors) -> None:
    """Inputs of half, of twice and of an odd share of a size, as far as the reference takes them.

    A kernel may be made for its sizes as long as it refuses others; one that takes them and returns something
    else was never asked how large its argument is. Rejected only where no size of a family comes out right:
    silently relying on divisible sizes is a warning, as are sizes that the constructor is told.
    """
    if trial.typical_s.get("eager", 0.0) > SLOW_SHARE * trial.request.run_limit_s:
        return
    comparison, tolerance = trial.comparison, trial.tolerance
    trial.tolerance = tolerance.widened(GROSS)
    deadline = time.monotonic() + BUDGET_S
    taken = 0
    try:
        for family in _families(tensors)[:MAX_TRIED]:
            if taken == MAX_FAMILIES or time.monotonic() > deadline:
                return
            taken += _judge_family(trial, tensors, more, family)
    except _Broken as broken:
        _specialised(trial, "warning", str(broken))
    except ChildFailure as failure:
        trial.flag("other-shapes-skipped", "info", f"the reference failed for other shapes: {failure}"[:300])
    finally:
        trial.comparison, trial.tolerance = comparison, tolerance


class _Broken(Exception):
    """The candidate is gone or hangs: nothing more can be asked of it."""


def _judge_family(trial: Trial, tensors: Tensors, more: Tensors, family: Family) -> bool:
    """Whether the reference took any of the sizes."""
    size = tensors[family[0][0]].shape[family[0][1]]
    wrong: list[str] = []
    refusal = ""
    right = taken = False
    for new, aligned in _sizes(size):
        if (aligned and right) or (new < size and _holds_indices(tensors, new)):
            continue
        resized = _resized(tensors, more, family, new)
        if not _resize(trial, resized):
            continue
        taken = True
        what = _told(tensors, resized)
        trial.comparison = Comparison()
        try:
            _connect_candidate(trial)
            _call_both(trial, what)
        except Mismatch as mismatch:
            if not all_finite(trial.reference.outputs):
                continue
            if aligned:
                wrong.append(str(mismatch))
            else:
                _specialised(trial, "warning", f"silently wrong for sizes that divide otherwise: {mismatch}")
        except ChildFailure as failure:
            if failure.side is trial.reference:
                raise
            if failure.kind in KERNEL_FAULTS:
                wrong.append(f"{failure} ({what})")
            elif _refused(trial, failure):
                refusal = f"refuses other shapes ({what}): {failure}"
                break
            else:
                raise _Broken(f"for another shape ({what}): {failure}") from failure
        else:
            right |= aligned
    # Dimensions of one size may belong together: a candidate may take one for another that was left as it is.
    whole = all((i, d) in family for i, t in enumerate(tensors) for d, n in enumerate(t.shape) if n == size)
    if wrong and whole and not (right or refusal) and size not in plain_values(trial.init):
        detail = f"hard-coded for the benchmark's shape: silently wrong for any other: {wrong[0]}"
        trial.flag("shape-hardcoded", "reject", detail[:400])
        raise Verdict("rejected", f"shape-hardcoded: {detail}")
    if wrong:
        _specialised(trial, "warning", f"silently wrong for some other shapes: {wrong[0]}")
    elif refusal:
        _specialised(trial, "info", refusal)
    return taken


def _specialised(trial: Trial, severity: str, detail: str) -> None:
    if not any(flag["rule"] == "shape-specialised" for flag in trial.result.flags):
        trial.flag("shape-specialised", severity, detail[:300])


def _families(tensors: Tensors) -> list[Family]:
    """Dimensions that may belong together: the first and the last ones of one size, all of one size, single
    ones.
    """
    places = [(i, d, n) for i, t in enumerate(tensors) for d, n in enumerate(t.shape) if n > 1]
    found: list[Family] = []

    def add(family: Family) -> None:
        if family and family not in found:
            found.append(family)

    for end in (0, -1):
        ends = [(i, d, n) for i, d, n in places if d == end % tensors[i].dim()]
        if ends:
            add([(i, d) for i, d, n in ends if n == ends[0][2]])
    for size in dict.fromkeys(n for *_, n in places):
        add([(i, d) for i, d, n in places if n == size])
    for i, d, _ in places:
        add([(i, d)])
    return found


def _sizes(size: int) -> Iterator[tuple[int, bool]]:
    """Other sizes, and whether they divide as the old one does."""
    if size >= 4:
        yield size // 2, size % 2 == 0
    yield 2 * size, True
    if size >= 5:
        yield 2 * size // 3 | 1, False


def _resized(tensors: Tensors, more: Tensors, family: Family, size: int) -> Tensors:
    """Grows by what another draw holds."""
    changed, further = list(tensors), list(more)
    for i, d in family:
        if size > changed[i].shape[d]:
            changed[i] = torch.cat([changed[i], further[i]], d)
            further[i] = torch.cat([further[i], further[i]], d)  # for other dimensions of this tensor
        changed[i] = changed[i].narrow(d, 0, size).contiguous()
    return changed


def _holds_indices(tensors: Tensors, size: int) -> bool:
    """Whether an integer input may point beyond a size: on a device, that would end the reference."""
    integers = (t for t in tensors if not t.is_floating_point() and not t.is_complex() and t.numel())
    return any(t.dtype != torch.bool and int(t.max()) >= size for t in integers)


def _told(before: Tensors, after: Tensors) -> str:
    """`input 0: 64x128 instead of 32x128`."""
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.shape != new.shape:
            return f"input {i}: {'x'.join(map(str, new.shape))} instead of {'x'.join(map(str, old.shape))}"
    return "the same shapes"


# -- presenting inputs ---------------------------------------------------------------------------------


def _place(trial: Trial, tensors: Tensors, layout: list[dict[str, Any]]) -> None:
    """Gives the reference these inputs in one slot instead of what it had; places for results are gone."""
    ref = trial.reference
    ref.unmap(LOAD_LIMIT_S)
    trial.layout, trial.slots = layout, 1
    ref.map_inputs(trial.structure, layout, 1, LOAD_LIMIT_S)
    ref.slots[0].write(layout, tensors)


def _resize(trial: Trial, tensors: Tensors) -> bool:
    """Gives the reference inputs of other sizes; False where it does not take them."""
    layout = describe_layout(tensors, contiguous=True)
    if layout_bytes(layout) > LARGE:
        return False
    _place(trial, tensors, layout)
    try:
        _, answer = trial.reference.first_call(0, trial.request.run_limit_s, "eager", trial.seed())
    except ChildFailure as failure:
        if failure.log:
            return False
        raise
    if "mismatch" in answer or skeleton(answer["structure"]) != trial.output_structure:
        return False
    trial.output_layout = answer["layout"]
    trial.reference.map_output(trial.output_structure, trial.output_layout, LOAD_LIMIT_S)
    trial.reference.slots[0].write(layout, tensors)
    return True


def _connect_candidate(trial: Trial) -> None:
    """Places of the same layout for the candidate."""
    side = trial.candidate
    side.unmap(LOAD_LIMIT_S)
    side.map_inputs(trial.structure, trial.layout, 1, LOAD_LIMIT_S)
    side.map_output(trial.output_structure, trial.output_layout, LOAD_LIMIT_S)


def _call_both(trial: Trial, what: str) -> None:
    """Raises Mismatch where the sides disagree, and in double precision as well."""
    for exact in (False, True):
        if trial.stateful:
            renew(trial)
        try:
            return Rounds(trial, exact=exact).call_both(0, what)
        except Mismatch:
            if exact:
                raise


def _refused(trial: Trial, failure: ChildFailure) -> bool:
    """Whether the candidate raised an error and goes on living."""
    raised = failure.side is trial.candidate and bool(failure.log)
    return raised and failure.kind not in ("timeout", *KERNEL_FAULTS)
