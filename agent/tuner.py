"""After a model's step, a few cheap measurements of other numbers in its kernel, before it is asked again.

A coordinate search: a number that helped is moved further in the same direction, else the next one is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.generator import Draft
from agent.graph import SearchNode
from agent.hypothesis import Hypothesis
from agent.novelty import program_digest
from agent.policies.base import TUNE, WARM_START
from agent.tuning import Parameter, find_parameters, with_value

# A kernel slower than this share of the best is not worth tuning.
_WORTH = 0.8
# How much the change of one number moves, when nothing is known of it yet.
_USUAL = (0.9, 1.1)


@dataclass
class _Campaign:
    """The tuning of one model's kernel. `base` is its fastest variant so far."""

    origin: str
    base: SearchNode
    told: int = 0
    moves: set[tuple[str, int]] = field(default_factory=set)
    onward: tuple[str, int, float] | None = None  # what has helped last: name, the value before, the gain


class Tuner:
    """`evaluations` for each kernel that a model wrote and that is correct and fast enough; 0 tunes nothing.

    Its state follows from what it is told, so that a resumed run goes on as it would have.
    """

    def __init__(self, evaluations: int) -> None:
        self._evaluations = evaluations
        self._campaigns: dict[str, _Campaign] = {}

    def tell(self, injected: Mapping[str, Any] | None, node: SearchNode | None, best: float) -> None:
        """What came of a step; `best` is the fitness of the best node so far."""
        by = injected.get("by") if injected is not None else None
        if injected is not None and by == TUNE:
            campaign = self._campaigns.get(injected.get("origin", ""))
            if campaign is not None:
                self._advance(campaign, injected, node)
        elif (
            self._evaluations
            and by != WARM_START
            and node is not None
            and node.correct
            and node.genome is None  # a recipe's numbers are genes, which it changes itself
            and not node.compiler_made
            and node.fitness > 0
            and node.fitness >= _WORTH * best
        ):
            self._campaigns[node.node_id] = _Campaign(node.node_id, node)

    def _advance(self, campaign: _Campaign, injected: Mapping[str, Any], node: SearchNode | None) -> None:
        campaign.told += 1
        name, before, after = str(injected["name"]), int(injected["from"]), int(injected["to"])
        campaign.moves.add((name, after))
        if node is not None and node.correct and node.fitness > campaign.base.fitness:
            campaign.onward = (name, before, node.fitness / campaign.base.fitness)
            campaign.base = node
        if campaign.told >= self._evaluations:
            del self._campaigns[campaign.origin]

    def propose(
        self,
        source_of: Callable[[SearchNode], str],
        tried: Collection[str],
        pending: Iterable[Mapping[str, Any]],
    ) -> dict[str, Any] | None:
        """The next variant to measure, or None. `tried` are digests of programs that the run has, `pending`
        what was proposed and not told yet.
        """
        for campaign in list(self._campaigns.values()):
            waiting = [p for p in pending if p.get("origin") == campaign.origin]
            if campaign.told + len(waiting) >= self._evaluations:
                continue
            source = source_of(campaign.base)
            taken = campaign.moves | {(str(p["name"]), int(p["to"])) for p in waiting}
            for parameter, value in _moves(campaign, find_parameters(source)):
                if (parameter.name, value) in taken:
                    continue
                if program_digest(with_value(source, parameter, value)) not in tried:
                    return {
                        "by": TUNE,
                        "origin": campaign.origin,
                        "name": parameter.name,
                        "from": parameter.value,
                        "to": value,
                        "gain": _gain(campaign, parameter, value),
                    }
            if not waiting:
                del self._campaigns[campaign.origin]
        return None

    def base_of(self, proposal: Mapping[str, Any]) -> str:
        """The node that a fresh proposal changes."""
        return self._campaigns[proposal["origin"]].base.node_id


def tuned_draft(source: str, proposal: Mapping[str, Any]) -> Draft:
    """The candidate of a proposal: its base's source with the other number."""
    name, before, after = str(proposal["name"]), int(proposal["from"]), int(proposal["to"])
    parameter = next(p for p in find_parameters(source) if (p.name, p.value) == (name, before))
    gain = proposal.get("gain")
    claim = Hypothesis(
        change=f"{name} from {before} to {after}",
        because=f"the last change of it gave {gain:.2f}x" if gain else "only a measurement tells which fits",
        predicted=(1.0, float(gain)) if gain else _USUAL,
    )
    return Draft(
        source=with_value(source, parameter, after),
        hypothesis=claim.text,
        claim=claim,
        generator=TUNE,
        brief=True,
        notes={"tuned": {"name": name, "from": before, "to": after, "origin": proposal["origin"]}},
    )


def _moves(campaign: _Campaign, parameters: list[Parameter]) -> Iterable[tuple[Parameter, int]]:
    if campaign.onward is not None:
        name, before, _gain = campaign.onward
        for parameter in parameters:
            further = [
                v for v in parameter.neighbours() if (v - parameter.value) * (parameter.value - before) > 0
            ]
            if parameter.name == name and further:
                yield parameter, further[0]
    for parameter in parameters:
        for value in parameter.neighbours():
            yield parameter, value


def _gain(campaign: _Campaign, parameter: Parameter, value: int) -> float | None:
    """What the last step in this direction gave, where the value goes on in it."""
    if campaign.onward is None or campaign.onward[0] != parameter.name:
        return None
    _name, before, gain = campaign.onward
    return gain if (value - parameter.value) * (parameter.value - before) > 0 else None
