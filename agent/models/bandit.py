"""Which of several models is asked next: a discounted UCB bandit that weighs what an answer costs.

Its state follows from what it was told, in order: a resumed run tells it the same again, and the list of
models may be another one then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agent.graph import SearchNode

# Progress gets rarer as a run goes on: what was long ago counts less, half after 34 steps.
_DISCOUNT = 0.98
# How much a model is preferred for having been asked little (rewards lie between 0 and 1).
_EXPLORATION = 0.35
# What the dearest model must be better by, on average, to be preferred to one that costs nothing.
_COST_WEIGHT = 0.15
_CORRECT = 0.25  # reward of a correct candidate that is no faster


@dataclass
class _Arm:
    """Discounted sums over the answers of one model."""

    asked: float = 0.0
    reward: float = 0.0
    tokens: float = 0.0
    cost_usd: float | None = 0.0


class ModelBandit:
    """Knows every model that has answered in a run."""

    def __init__(self) -> None:
        self._arms: dict[str, _Arm] = {}

    def tell(self, name: str, reward: float, tokens: int, cost_usd: float | None) -> None:
        """An answer of a model was worth `reward` (0 to 1). A cost that is unknown stays so."""
        for arm in self._arms.values():
            arm.asked *= _DISCOUNT
            arm.reward *= _DISCOUNT
            arm.tokens *= _DISCOUNT
            arm.cost_usd = None if arm.cost_usd is None else arm.cost_usd * _DISCOUNT
        arm = self._arms.setdefault(name, _Arm())
        arm.asked += 1
        arm.reward += reward
        arm.tokens += tokens
        arm.cost_usd = None if arm.cost_usd is None or cost_usd is None else arm.cost_usd + cost_usd

    def order(self, names: Sequence[str], pending: Sequence[str] = ()) -> list[str]:
        """`names`, the one to ask first; `pending` are the models of steps that are under way.

        Whoever was never asked comes first, in the order given. Costs are compared in USD where they are
        known for all, else in tokens.
        """
        arms = {name: self._arms.get(name, _Arm()) for name in names}
        asked = {name: arm.asked + pending.count(name) for name, arm in arms.items()}
        total = sum(asked.values())
        shares = _cost_shares(arms)

        def score(name: str) -> float:
            if not asked[name]:
                return math.inf
            arm = arms[name]
            mean = arm.reward / arm.asked if arm.asked else 0.0
            unsure = _EXPLORATION * math.sqrt(math.log(1 + total) / asked[name])
            return mean + unsure - _COST_WEIGHT * shares[name]

        return sorted(dict.fromkeys(names), key=lambda name: -score(name))


def reward_of(node: SearchNode | None, parent: SearchNode | None) -> float:
    """What a step was worth: 0 for a failure, 0.25 for a correct candidate, up to 1 for one that takes half
    the time of its parent (of the reference, where the parent was not correct) or less.
    """
    if node is None or not node.correct:
        return 0.0
    before = parent.fitness if parent is not None and parent.fitness > 0 else 1.0
    gain = math.log2(node.fitness / before) if node.fitness > 0 else 0.0
    return _CORRECT + (1 - _CORRECT) * min(1.0, max(0.0, gain))


def _cost_shares(arms: dict[str, _Arm]) -> dict[str, float]:
    """The mean cost of an answer of each model as a share of the dearest one's."""
    in_usd = all(arm.cost_usd is not None for arm in arms.values())
    means = {
        name: ((arm.cost_usd or 0.0) if in_usd else arm.tokens) / arm.asked if arm.asked else 0.0
        for name, arm in arms.items()
    }
    dearest = max(means.values(), default=0.0)
    return {name: mean / dearest if dearest > 0 else 0.0 for name, mean in means.items()}
