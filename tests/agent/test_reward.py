"""The reward function: alone with a judge that is a stub, and in a real step of TRL with the real one."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path

import pytest
from search_stubs import PROBLEM, StubExecutor

from agent.errors import SettingsInvalid
from agent.export.steps import answer
from agent.reward import KernelReward
from harness import LocalExecutor
from harness.worker.model import Evaluation, EvaluationRequest


def candidate(x: int) -> str:
    return answer("try it", f"class ModelNew:\n    X = {x}\n")


def test_the_reward_is_the_fitness_of_what_was_answered() -> None:
    executor = StubExecutor()
    texts = [candidate(100), "I would rather not.", candidate(11), candidate(201), candidate(100)]
    rewards = KernelReward(executor)(texts, problem=[PROBLEM] * 5, target=["cpu"] * 5, prompts=["p"] * 5)
    assert rewards == [1.5, 0.0, 0.0, 2.51, 1.5]
    assert len(executor.requests) == 3  # an equal program is judged once
    assert {request.problem for request in executor.requests} == {PROBLEM}


def test_conversations_are_taken_by_their_last_message() -> None:
    said = [{"role": "assistant", "content": candidate(100)}]
    assert KernelReward(StubExecutor())([said, []], problem=[PROBLEM] * 2) == [1.5, 0.0]


def test_edits_are_of_the_file_that_the_prompt_showed() -> None:
    edit = "HYPOTHESIS: more\n\n<<<<<<< SEARCH\n    X = 100\n=======\n    X = 201\n>>>>>>> REPLACE\n"
    base = "class ModelNew:\n    X = 100\n"
    reward = KernelReward(StubExecutor())
    assert reward([edit, edit], problem=[PROBLEM] * 2, base=[base, None]) == [2.51, 0.0]


def test_a_broken_harness_is_no_reward() -> None:
    class Broken(StubExecutor):
        def evaluate(self, request: EvaluationRequest) -> Evaluation:
            return Evaluation("harness_error")

    assert KernelReward(Broken())([candidate(1)], problem=[PROBLEM]) == [None]


def test_a_data_set_without_problems_is_named() -> None:
    with pytest.raises(SettingsInvalid, match="no column `problem`"):
        KernelReward(StubExecutor())([candidate(1)])


GOOD = """import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        return x + {0}
"""


class Watched:
    """The real judge; remembers what it said."""

    def __init__(self, executor: LocalExecutor) -> None:
        self._executor = executor
        self.verdicts: list[Evaluation] = []

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        self.verdicts.append(self._executor.evaluate(request))
        return self.verdicts[-1]


@pytest.mark.full
@pytest.mark.skipif(
    importlib.util.find_spec("trl") is None, reason="trl is not installed: pip install -e '.[trl]'"
)
def test_a_step_of_grpo_learns_from_the_harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny, randomly initialised model whose vocabulary is whole answers: some of its samples run."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import torch
    from datasets import load_dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    answers = [answer("right", GOOD.format(1)), answer("wrong", GOOD.format(2)), "no file at all"]
    words = ["<pad>", "<eos>", "<unk>", "go", *answers]
    tokens = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokens, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    record = {"prompt": "go", "problem": PROBLEM, "problem_name": "plus_one", "target": "cpu"}
    (tmp_path / "prompts.jsonl").write_text(json.dumps(record) + "\n")
    data = load_dataset(
        "json",
        data_files=str(tmp_path / "prompts.jsonl"),
        split="train",
        cache_dir=str(tmp_path / "datasets"),
    )

    with LocalExecutor(tmp_path / "cache") as executor:
        judge = Watched(executor)
        arguments = GRPOConfig(
            output_dir=str(tmp_path / "out"), per_device_train_batch_size=16, num_generations=16, max_steps=1,
            max_completion_length=1, learning_rate=1e-2, use_cpu=True, report_to=[], save_strategy="no",
            logging_steps=1, disable_tqdm=True, seed=0, bf16=False,
        )  # fmt: skip
        trainer = GRPOTrainer(
            model,
            reward_funcs=KernelReward(judge),
            args=arguments,
            train_dataset=data,
            processing_class=tokenizer,
        )
        trainer.train()
    assert sorted(verdict.status for verdict in judge.verdicts) == ["correct", "incorrect"]
    (log,) = [entry for entry in trainer.state.log_history if "reward" in entry]
    measured = max(verdict.speedup or 0.0 for verdict in judge.verdicts)
    times = log["reward"] * 16 / measured  # of 16 answers so many were the right one
    assert 1 <= round(times) < 16
    assert times == pytest.approx(round(times), rel=1e-3)
    assert log["rewards/kernel_reward/mean"] == log["reward"]
    assert math.isfinite(log["grad_norm"])
    assert log["grad_norm"] > 0
    assert any(not torch.equal(before[name], value) for name, value in trainer.model.state_dict().items())
