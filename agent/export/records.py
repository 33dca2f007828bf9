"""The formats of training data. Every record is made of steps as they were; one JSON object a line.

- `sft`: a trajectory from the specification to a correct candidate: `messages`, as TRL's SFTTrainer takes
  them, and `states` and `outcomes` of its steps;
- `openai`: its `messages` alone, which is all that OpenAI's fine-tuning takes;
- `dpo`: two siblings with a fitness gap: `prompt`, `chosen`, `rejected`, as TRL's DPOTrainer takes them;
- `grpo`: the measured siblings of one parent: `prompts`, `completions`, `rewards`, `states`;
- `trl`: a prompt with its problem, for TRL's GRPOTrainer with `agent.reward`.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.errors import NothingToExport, SettingsInvalid
from agent.export.steps import Step, steps_of
from agent.store import RunStore

if TYPE_CHECKING:
    from kb import KnowledgeBase

Record = dict[str, Any]


@dataclass
class Export:
    """What was written. `left_out` counts steps by reason, `licences` records by licence of their sources."""

    path: Path
    format: str
    runs: list[str]
    records: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    licences: Counter[str] = field(default_factory=Counter)


def export_runs(
    kb: KnowledgeBase,
    runs: Sequence[str],
    format: str,
    out: Path,
    *,
    margin: float = 0.1,
    licences: Collection[str] = (),
) -> Export:
    """Write training data of `runs` (ids, unique prefixes or `last`) to `out`, the same bytes every time.

    What local-only passages have shaped is always left out. With `licences` (SPDX, in any case), so is what a
    source under another licence, or under none that is known, has shaped. `margin` is the gap in fitness
    (speedup; 0 for a failure) above which two siblings are a pair. A step counts with its first verdict; one
    that the final verification refuted is never an example to follow.

    Raises RunNotFound, SettingsInvalid, and NothingToExport, with nothing written.
    """
    if format not in FORMATS:
        raise SettingsInvalid(f"unknown format {format!r}", f"one of {', '.join(FORMATS)}")
    if not margin >= 0:
        raise SettingsInvalid(f"the margin must be 0 or more, not {margin}")
    store = RunStore(kb)
    ids = list(dict.fromkeys(store.resolve(run) for run in runs))
    result = Export(out, format, ids)
    allowed = {licence.casefold() for licence in licences}
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".part")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            for run_id in ids:
                run = store.load(run_id)
                steps = _admitted(steps_of(kb, run), allowed, result.left_out)
                for steps_used, record in FORMATS[format](Material(steps, run.problem_source, margin)):
                    found = sorted(set().union(*(step.licences for step in steps_used)))
                    about = {"run_id": run_id, "problem_name": run.info.problem, "target": run.info.target}
                    if format != "openai":
                        record |= {**about, "licences": found}
                    file.write(_line(record))
                    result.records += 1
                    result.licences.update(found)
        if not result.records:
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(result.left_out.items()))
            raise NothingToExport(
                f"nothing to export as {format} from {len(ids)} run(s)",
                f"steps left out: {reasons}" if reasons else "the runs have no step of that kind",
            )
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return result


def _admitted(steps: Sequence[Step], allowed: Collection[str], left_out: Counter[str]) -> list[Step]:
    kept = []
    for step in steps:
        if step.private:
            left_out["local-only"] += 1
        elif allowed and not {licence.casefold() for licence in step.licences} <= set(allowed):
            left_out["licence"] += 1
        else:
            kept.append(step)
    return kept


# --- formats: what a run gives to (steps of the record, record) ---


@dataclass(frozen=True)
class Material:
    """The admitted steps of one run, the source of its problem, and the margin of a pair."""

    steps: Sequence[Step]
    problem: str
    margin: float


Records = Iterator[tuple[list[Step], Record]]


def _sft(given: Material) -> Records:
    for path in trajectories(given.steps):
        yield (
            path,
            {
                "messages": _messages(path),
                "states": [step.state for step in path],
                "outcomes": [step.outcome for step in path],
            },
        )


def _openai(given: Material) -> Records:
    for path in trajectories(given.steps):
        yield path, {"messages": _messages(path)}


def _dpo(given: Material) -> Records:
    for family in _families(given.steps):
        for first, second in itertools.combinations(family, 2):
            better, worse = sorted((first, second), key=lambda s: -(s.reward or 0.0))
            gap = (better.reward or 0.0) - (worse.reward or 0.0)
            if gap > given.margin:
                # The prompt of the earlier one knows the outcome of neither.
                yield (
                    [first, second],
                    {
                        "prompt": [_user(first.prompt)],
                        "chosen": [_assistant(better.answer)],
                        "rejected": [_assistant(worse.answer)],
                        "margin": gap,
                        "state": first.state,
                        "outcomes": {"chosen": better.outcome, "rejected": worse.outcome},
                    },
                )


def _grpo(given: Material) -> Records:
    for family in _families(given.steps):
        if len(family) > 1:
            yield (
                family,
                {
                    "parent_id": family[0].node.parent_id,
                    "prompts": [[_user(step.prompt)] for step in family],
                    "completions": [[_assistant(step.answer)] for step in family],
                    "rewards": [step.reward for step in family],
                    "states": [step.state for step in family],
                    "outcomes": [step.outcome for step in family],
                },
            )


def _trl(given: Material) -> Records:
    seen: set[str] = set()
    for step in given.steps:
        if step.prompt and step.prompt not in seen:
            seen.add(step.prompt)
            yield (
                [step],
                {
                    "prompt": [_user(step.prompt)],
                    "problem": given.problem,
                    "base": step.base,
                    "state": step.state,
                },
            )


FORMATS: dict[str, Callable[[Material], Records]] = {
    "sft": _sft,
    "dpo": _dpo,
    "grpo": _grpo,
    "openai": _openai,
    "trl": _trl,
}


def trajectories(steps: Sequence[Step]) -> list[list[Step]]:
    """Paths from the specification to a correct candidate, none of which is the beginning of another.

    What follows the last step that is worth following is cut; a path that has none is left out.
    """
    by_id = {step.node.node_id: step for step in steps}
    parents = {step.node.parent_id for step in steps}
    found: dict[str, list[Step]] = {}
    for leaf in steps:
        if leaf.node.node_id in parents:
            continue
        path = _path(leaf, by_id)
        while path and not _exemplary(path[-1]):
            path.pop()
        path = [step for step in path if step.prompt]
        if path:
            found[path[-1].node.node_id] = path
    inner = {step.node.node_id for path in found.values() for step in path[:-1]}
    return [path for end, path in found.items() if end not in inner]


def _path(leaf: Step, by_id: dict[str, Step]) -> list[Step]:
    path = [leaf]
    while (parent := by_id.get(path[-1].node.parent_id or "")) is not None:
        path.append(parent)
    return path[::-1]


def _exemplary(step: Step) -> bool:
    return step.written and step.node.correct and not step.refuted


def _families(steps: Sequence[Step]) -> list[list[Step]]:
    """Measured children of one parent as they were begun; a number that was refuted is none."""
    families: dict[str | None, list[Step]] = {}
    for step in steps:
        if step.reward is not None and not step.refuted:
            families.setdefault(step.node.parent_id, []).append(step)
    return [sorted(family, key=lambda step: step.node.step) for family in families.values()]


def _messages(path: Sequence[Step]) -> list[Record]:
    """`weight` 0 marks an answer that is there to be understood, not to be learnt."""
    messages: list[Record] = []
    for step in path:
        messages += [_user(step.prompt), {**_assistant(step.answer), "weight": int(_exemplary(step))}]
    return messages


def _user(text: str) -> Record:
    return {"role": "user", "content": text}


def _assistant(text: str) -> Record:
    return {"role": "assistant", "content": text}


def _line(record: Record) -> str:
    line = json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return line.encode("utf-8", "replace").decode() + "\n"  # lone surrogates are no UTF-8
