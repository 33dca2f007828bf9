"""The recipe's hypotheses as data: predictions from the traffic that a fusion saves and from the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from agent.hypothesis import Hypothesis
from harness.worker.model import ProblemFacts, TensorSpec

_BYTES = {"float64": 8, "int64": 8, "complex64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2}
# What costs no traffic of its own.
_VIEWS = frozenset(
    ("view", "reshape", "permute", "transpose", "t", "expand", "unsqueeze", "squeeze", "slice", "select")
)
# One advised change closes part of the gap to the roofline; more than this is not to be expected of it.
_MOST = 1.5
_LEAST = 1.02
# What a change that nobody advises usually does.
_UNGUIDED = (0.95, 1.05)


def fusion(change: str, facts: ProblemFacts) -> Hypothesis:
    """Every operator of eager reads and writes memory; fused, only inputs, state and results are left."""
    between = sum(
        sum(_size(spec) for spec in node.outputs) for node in facts.nodes if _name(node.op) not in _VIEWS
    )
    results = sum(_size(spec) for spec in facts.outputs)
    least = max(facts.bytes_min, 1)
    ratio = max(1.0, (least + 2 * max(0, between - results)) / least)
    return Hypothesis(
        change=change,
        because=f"fused, {least / 1e6:.3g} MB move instead of {ratio * least / 1e6:.3g} MB",
        predicted=(math.sqrt(ratio), ratio),
    )


def advised_change(change: str, because: str, diagnosis: Mapping[str, Any]) -> Hypothesis:
    """Guidance advises it for the parent's bottleneck: a gain within what the roofline leaves."""
    roofline = diagnosis.get("roofline") or {}
    reached = max(float(roofline.get(name) or 0.0) for name in ("fraction", "compute_fraction"))
    if not reached:
        return Hypothesis(change, because, faster=True)
    most = max(_LEAST, min(_MOST, 1 / reached))
    return Hypothesis(change, because, (_LEAST, most))


def unguided_change(change: str) -> Hypothesis:
    """No document advises it."""
    return Hypothesis(change, "no guidance is left to try, and neighbours are worth a measurement", _UNGUIDED)


def repair(change: str, status: object) -> Hypothesis:
    """The parent failed: nothing but correctness is predicted."""
    return Hypothesis(change, f"the parent was {status}", correct=True)


def _name(op: str) -> str:
    return op.removeprefix("aten.").split(".")[0].lstrip("_")


def _size(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * _BYTES.get(spec.dtype, 1)
