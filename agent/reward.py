"""The harness as a reward function of TRL's GRPOTrainer.

    kernelevolve runs export RUN --format trl --out prompts.jsonl

    from datasets import load_dataset
    from trl import GRPOConfig, GRPOTrainer
    from agent.reward import kernel_reward

    dataset = load_dataset("json", data_files="prompts.jsonl", split="train")
    GRPOTrainer(model, reward_funcs=kernel_reward, args=GRPOConfig(…), train_dataset=dataset).train()

The reward is the fitness that a search uses: the measured speedup of a correct candidate, 0 for all else.
Candidates run in the harness's jail, in processes of their own.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from agent.errors import SettingsInvalid
from agent.graph import fitness_of
from agent.judge import UNJUDGED, Executor, Judge
from agent.novelty import program_digest
from agent.parsing import Unparseable, parse_answer
from agent.settings import SearchSettings

Completion = str | Sequence[Mapping[str, Any]]


class KernelReward:
    """Judges completions by `executor` under the limits of `settings`, one at a time.

    `settings` needs no problem and no target: those come with each prompt.
    """

    def __init__(self, executor: Executor, settings: SearchSettings | None = None) -> None:
        self._executor = executor
        self._settings = settings or SearchSettings(problem="")
        self.__name__ = "kernel_reward"  # what TRL logs it as

    def __call__(
        self,
        completions: Sequence[Completion],
        problem: Sequence[str] | None = None,
        target: Sequence[str] | None = None,
        problem_name: Sequence[str] | None = None,
        base: Sequence[str | None] | None = None,
        **_other: Any,
    ) -> list[float | None]:
        """One reward for each completion (a text, or messages of which the last is the answer).

        `problem` has the source of each one's problem; `target`, `problem_name` and `base` (the file that
        edits are of) are optional columns. None where the harness itself failed, which TRL leaves out of the
        mean. Equal programs are judged once.
        Raises SettingsInvalid without the column `problem`, TargetUnknown, TargetUnavailable.
        """
        if problem is None:
            raise SettingsInvalid(
                "the data set has no column `problem`", "make it by kernelevolve runs export --format trl"
            )
        known: dict[tuple[str, str, str], float | None] = {}
        rewards: list[float | None] = []
        for index, completion in enumerate(completions):
            try:
                source = parse_answer(
                    _text(completion), base=base[index] if base is not None else None
                ).source
            except Unparseable:
                rewards.append(0.0)
                continue
            place = target[index] if target is not None else self._settings.target
            key = (problem[index], place, program_digest(source))
            if key not in known:
                name = problem_name[index] if problem_name is not None else "problem"
                known[key] = self._judged(problem[index], name, place, source)
            rewards.append(known[key])
        return rewards

    def _judged(self, problem: str, name: str, target: str, source: str) -> float | None:
        judge = Judge(self._executor, replace(self._settings, target=target), name, problem)
        verdict = judge.verdict(source)
        return None if verdict["status"] in UNJUDGED else fitness_of(verdict)


def kernel_reward(completions: Sequence[Completion], **columns: Any) -> list[float | None]:
    """`KernelReward` with this machine's judge, which is started by the first call; see there."""
    return _here()(completions, **columns)


@cache
def _here() -> KernelReward:
    from harness import LocalExecutor
    from kb import Settings

    executor = LocalExecutor(Settings().home / "cache")
    atexit.register(executor.close)
    return KernelReward(executor)


def _text(completion: Completion) -> str:
    if isinstance(completion, str):
        return completion
    return str(completion[-1].get("content") or "") if completion else ""
