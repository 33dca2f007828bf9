"""What earlier runs found, brought into a new one with probability p.

Runs are matched on the operators of the reference, its shapes and dtypes, and the target. What fits (the same
operators, shapes and interface) is judged again here, as a candidate of its own; the kernel of another
problem is shown as an example. Neither counts for more than this run's judge says.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from agent.errors import SettingsInvalid
from agent.graph import SearchNode
from agent.hypothesis import Hypothesis
from agent.policies.base import EXAMPLE, WARM_START

ADAPTIVE = "adaptive"
Kind = Literal["fits", "alike"]

# Adaptive: where a run starts with nothing of its own; halved by each gain that is its own.
_HIGH = 0.8
# After so many steps without a gain, half of it is back.
_STALL = 8
# Other problems count as alike from this similarity on.
_ALIKE = 0.6
MOST = 5


@dataclass(frozen=True)
class Match:
    """A node of an earlier run. `fits`: its interface and operators are this problem's, so its source may be
    right here; `alike`: it solves a similar problem. `skills` are those it was made with.
    """

    node_id: str
    run_id: str
    problem: str
    target: str
    speedup: float
    similarity: float
    kind: Kind
    skills: tuple[str, ...] = ()
    local_only: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Match:
        return cls(**{**data, "skills": tuple(data["skills"])})


def parse_probability(text: str) -> float | None:
    """The fixed probability, or None for `adaptive`. Raises SettingsInvalid."""
    if text == ADAPTIVE:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise SettingsInvalid(
            f"warm_start must be a probability or {ADAPTIVE}, not {text!r}",
            "use 0, a number up to 1, or adaptive",
        )
    return value


class WarmStart:
    """Decides, step by step, whether an earlier run has its say. State follows from what it is told."""

    def __init__(self, setting: str) -> None:
        self._fixed = parse_probability(setting)
        self.matches: list[Match] = []
        self._used: Counter[str] = Counter()
        self._gains = 0  # improvements of the best that the run has found by itself
        self._since = 0  # steps since the last improvement

    @property
    def wanted(self) -> bool:
        return self._fixed != 0.0

    @property
    def probability(self) -> float:
        """Of an injection in the next step. Adaptive: high at the start and after a stall, and the lower the
        more often the run has improved by itself.
        """
        if self._fixed is not None:
            return self._fixed
        own_way: float = 0.5**self._gains
        stall: float = 1 - 0.5 ** (self._since / _STALL)
        return _HIGH * max(own_way, stall)

    def tell(self, injected: Mapping[str, Any] | None, *, is_best: bool) -> None:
        """A step is over; `is_best`: it made the best node."""
        if injected is not None and injected.get("by") in (WARM_START, EXAMPLE):
            self._used[str(injected["node"])] += 1
        borrowed = injected is not None and injected.get("by") == WARM_START
        self._gains += is_best and not borrowed
        self._since = 0 if is_best else self._since + 1

    def propose(self, rng: random.Random, pending: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
        """What to inject into the next step, or None. First what fits, each once, as a candidate
        (`warm-start`); then kernels of other problems beside the prompt (`example`), in turn.
        """
        if not self.matches or rng.random() >= self.probability:
            return None
        uses = self._used + Counter(str(p.get("node")) for p in pending)
        for match in self.matches:
            if match.kind == "fits" and not uses[match.node_id]:
                return {"by": WARM_START, "node": match.node_id}
        examples = [m for m in self.matches if m.kind == "alike"]
        if not examples:
            return None
        least = min(examples, key=lambda match: uses[match.node_id])
        return {"by": EXAMPLE, "node": least.node_id}

    def match(self, node_id: str) -> Match:
        return next(match for match in self.matches if match.node_id == node_id)


def claim_of(match: Match, node: SearchNode) -> Hypothesis:
    """What is claimed when a node of an earlier run is judged again."""
    return Hypothesis(
        change=f"take over step {node.step} of run {match.run_id} ({match.problem}) as it is",
        because="it was the best there for the same operators, shapes and interface",
        predicted=(match.speedup, match.speedup),
    )


# --- matching ---


def similarity(facts: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """How alike two references are, from 0 to 1: operators, then shapes and dtypes of the inputs."""
    ops, theirs = operators(facts), operators(other)
    if not ops or not theirs:
        return 0.0
    shared = sum((ops & theirs).values()) / sum((ops | theirs).values())
    return shared * (0.5 + 0.5 * _inputs_alike(facts, other))


def operators(facts: Mapping[str, Any]) -> Counter[str]:
    """The operator signature: names without namespace and overload, with how often they occur."""
    names = (re.sub(r"^(?:torch\.ops\.)?aten[.:]+", "", str(n["op"])) for n in facts.get("nodes") or [])
    return Counter(name.split(".")[0].lstrip("_") for name in names if name and name != "getitem")


def fits(facts: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a candidate for one may be right for the other: equal inputs, state, results and operators."""
    parts = ("inputs", "parameters", "buffers", "outputs")
    same = all(_interface(facts.get(part)) == _interface(other.get(part)) for part in parts)
    return same and bool(operators(facts)) and operators(facts) == operators(other)


def alike_enough(value: float) -> bool:
    """Whether problems of this likeness (0 to 1) have something to tell each other."""
    return value >= _ALIKE


def same_vendor(target: str, other: str) -> bool:
    """Whether both targets are of one vendor, whatever their architectures."""
    return target.partition(":")[0] == other.partition(":")[0]


def _interface(specs: Any) -> list[tuple[Any, ...]]:
    return [(spec["name"], tuple(spec["shape"]), spec["dtype"]) for spec in specs or []]


def _inputs_alike(facts: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """1 for equal inputs, halved for every factor of 16 in size, 0 for another number of inputs or rank."""
    mine, theirs = facts.get("inputs") or [], other.get("inputs") or []
    if len(mine) != len(theirs) or not mine:
        return 0.0
    values: list[float] = []
    for a, b in zip(mine, theirs, strict=True):
        if len(a["shape"]) != len(b["shape"]):
            return 0.0
        octaves = sum(
            abs(math.log2(max(m, 1) / max(n, 1))) for m, n in zip(a["shape"], b["shape"], strict=True)
        )
        values.append(0.5 ** (octaves / 4) * (1.0 if a["dtype"] == b["dtype"] else 0.5))
    return sum(values) / len(values)
