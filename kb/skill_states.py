"""What a skill is worth recommending: decided from its evidence, never stored beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

State = Literal["curated", "candidate", "recommended", "stale"]


def skill_state(spec: Mapping[str, Any], evidence: Iterable[Mapping[str, Any]]) -> State:
    """`curated`: written by people. A distilled skill (its `spec` names an `origin`) is a `candidate` until
    it has won on a problem other than that; then `recommended`, or `stale` where every such win was measured
    with another compiler, driver or device.
    """
    origin = spec.get("origin")
    if not isinstance(origin, Mapping):
        return "curated"
    wins = [
        r for r in evidence if is_win(r) and r.get("problem_identity") not in (None, origin.get("identity"))
    ]
    if not wins:
        return "candidate"
    return "recommended" if any(not record.get("stale") for record in wins) else "stale"


def is_win(record: Mapping[str, Any]) -> bool:
    """Whether a measurement shows a correct kernel that is faster, the whole 95 % interval of it."""
    interval = record.get("speedup_ci")
    if record.get("status") != "correct" or not isinstance(interval, list | tuple) or len(interval) != 2:
        return False
    return isinstance(interval[0], int | float) and interval[0] > 1
