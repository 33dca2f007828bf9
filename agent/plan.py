"""What a search would take, before anything is spent: tokens, money and time, with what each number rests on.

Earlier runs of this store with the same generator and target say most. Without any, the prompt of the first
step is written and counted, and the rest is assumed, in the open: the basis of an estimate names it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlmodel import col, select

from agent.generators import generator_names, price_of, settled
from agent.place import Place
from agent.policies import Selection, load_policy
from agent.progress import RunProgress
from agent.settings import SearchSettings
from agent.step import StepWriter
from kb.tables import Event, Run

if TYPE_CHECKING:
    from harness.problem import Problem
    from harness.worker.model import ProblemFacts
    from kb import KnowledgeBase

_RUNS = 5  # of earlier ones, the latest
# Assumed where there is no earlier run, low, expected and high.
_ANSWER_TOKENS = (1_000, 4_000, 16_000)  # a kernel with its hypothesis; thinking makes it long
_PARENT_TOKENS = 2_000  # what the parent adds to the prompt of a draft
_TOKENS_PER_S = (150, 60, 20)  # of a model's answer
_JUDGING = (1.5, 3.0, 10.0)  # building, comparing and timing, in times of what is measured
_VERIFICATION_S = (10.0, 30.0, 120.0)  # the winner, longer and against torch.compile


@dataclass(frozen=True)
class Estimate:
    """A range; None where nothing is known. `basis` says what it rests on."""

    low: float | None
    expected: float | None
    high: float | None
    basis: str


@dataclass(frozen=True)
class SearchPlan:
    """`steps` is the limit; `tokens` are prompts and answers together; `time_s` is wall-clock seconds."""

    steps: int
    prompt_tokens: int
    tokens: Estimate
    cost_usd: Estimate
    time_s: Estimate

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Earlier:
    """What a step of a finished run took."""

    tokens: float
    cost_usd: float | None
    seconds: float


def plan(
    kb: KnowledgeBase,
    settings: SearchSettings,
    problem: Problem,
    facts: ProblemFacts,
    *,
    hosted: bool = True,
    place: Place | None = None,
) -> SearchPlan:
    """Estimate a search; `hosted` says whether its prompts leave this machine.

    Nothing is generated, judged or stored. Raises what retrieval raises.
    """
    place = place or Place.of(settings.target, kb.home / "cache")
    settings = replace(settings, generator=settled(settings.generator, kb))  # as earlier runs have it
    prompt = _first_prompt(kb, settings, problem, facts, place, hosted=hosted)
    earlier = _earlier(kb, settings)
    return SearchPlan(
        steps=settings.steps,
        prompt_tokens=prompt,
        tokens=_capped(_tokens(settings, prompt, earlier), settings.max_tokens),
        cost_usd=_capped(_cost(kb, settings, prompt, earlier), settings.max_cost_usd),
        time_s=_capped(_time(settings, earlier), settings.time_limit_s),
    )


def _first_prompt(
    kb: KnowledgeBase,
    settings: SearchSettings,
    problem: Problem,
    facts: ProblemFacts,
    place: Place,
    *,
    hosted: bool,
) -> int:
    progress = RunProgress(load_policy(settings.policy, settings.drafts))
    writer = StepWriter(kb, settings, problem.source, facts, place, run_id="", hosted=hosted)
    asked = writer.decide(progress, 1, Selection(None, "none", "plan"), generator_names(settings.generator))
    return writer.write(asked).prompt.tokens


def _earlier(kb: KnowledgeBase, settings: SearchSettings) -> list[_Earlier]:
    with kb.session() as session:
        found = session.exec(
            select(Run.settings, Event.payload)
            .join(Event, col(Event.run_id) == col(Run.id))
            .where(
                Event.kind == "finished",
                Run.generator == settings.generator,
                Run.target == settings.target,
            )
            .order_by(col(Run.created).desc())
            .limit(10 * _RUNS)
        ).all()
    runs = [
        _Earlier(
            result["tokens"] / result["steps"],
            None if result["cost_usd"] is None else result["cost_usd"] / result["steps"],
            result["elapsed_s"] / result["steps"],
        )
        for stored, result in found
        if result["steps"] and stored.get("concurrency", 1) == settings.concurrency
    ]
    return runs[:_RUNS]


def _tokens(settings: SearchSettings, prompt: int, earlier: list[_Earlier]) -> Estimate:
    if earlier:
        return _of([run.tokens for run in earlier], settings.steps)
    if settings.generator == "recipe":
        return Estimate(0, 0, 0, "recipe asks no model")
    steps, budget = settings.steps, settings.budget_tokens
    prompts = _prompts(settings, prompt)
    low, expected, high = (
        steps * (p + a) for p, a in zip((prompt, prompts, budget), _ANSWER_TOKENS, strict=True)
    )
    prompts_text = f"prompts of {prompt:,} to {budget:,} tokens"
    return Estimate(low, expected, high, f"{prompts_text}; assumed: answers of {_text(_ANSWER_TOKENS)}")


def _prompts(settings: SearchSettings, prompt: int) -> int:
    return min(settings.budget_tokens, prompt + _PARENT_TOKENS)


def _cost(kb: KnowledgeBase, settings: SearchSettings, prompt: int, earlier: list[_Earlier]) -> Estimate:
    if settings.generator == "recipe":
        return Estimate(0.0, 0.0, 0.0, "recipe asks no model")
    known = [run.cost_usd for run in earlier if run.cost_usd is not None]
    if known:
        return _of(known, settings.steps)
    names = generator_names(settings.generator)
    found = {name: price_of(name, kb.settings.prices) for name in names}
    missing = ", ".join(name for name, price in found.items() if price is None)
    if missing:
        return Estimate(None, None, None, f"no price of {missing} is known: set KERNELEVOLVE_PRICES")
    prices = [price for price in found.values() if price is not None]
    prompts = (prompt, _prompts(settings, prompt), settings.budget_tokens)
    costs = [
        [settings.steps * price.cost(p, a) for price in prices]
        for p, a in zip(prompts, _ANSWER_TOKENS, strict=True)
    ]
    low, expected, high = min(costs[0]), sum(costs[1]) / len(prices), max(costs[2])
    return Estimate(low, expected, high, f"the configured price of {', '.join(names)}, tokens as assumed")


def _time(settings: SearchSettings, earlier: list[_Earlier]) -> Estimate:
    if earlier:
        return _of([run.seconds for run in earlier], settings.steps)
    bounds = []
    for answer, rate, judging, last in zip(
        _ANSWER_TOKENS, _TOKENS_PER_S, _JUDGING, _VERIFICATION_S, strict=True
    ):
        judged = judging * settings.step_timing_s
        model = 0.0 if settings.generator == "recipe" else answer / rate
        # Answers overlap, candidates are judged one by one.
        step = max(judged, (model + judged) / settings.concurrency)
        bounds.append(settings.steps * step + last)
    low, expected, high = bounds
    basis = f"assumed: judging takes {_text(_JUDGING)} times the {settings.step_timing_s:g} s of measuring"
    if settings.generator != "recipe":
        basis += f", a model writes {_text(_TOKENS_PER_S)} tokens/s"
    return Estimate(low, expected, high, basis)


def _of(per_step: list[float], steps: int) -> Estimate:
    mean = sum(per_step) / len(per_step)
    plural = "s" if len(per_step) > 1 else ""
    basis = f"{len(per_step)} earlier run{plural} with this generator, target and concurrency"
    return Estimate(steps * min(per_step), steps * mean, steps * max(per_step), basis)


def _capped(estimate: Estimate, limit: float | None) -> Estimate:
    """A stop rule ends the search there, give or take a step."""
    values = (estimate.low, estimate.expected, estimate.high)
    if limit is None or all(value is None or value <= limit for value in values):
        return estimate
    low, expected, high = (None if value is None else min(value, limit) for value in values)
    return Estimate(low, expected, high, f"{estimate.basis}; stopped at {limit:g}")


def _text(values: tuple[float, ...]) -> str:
    return f"{values[0]:g} to {values[-1]:g}, most likely {values[1]:g}"
