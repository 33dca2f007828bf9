"""Operator chains that exist nowhere else: traced, composed, compiled and judged by the real harness."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.generator import GenerationRequest
from agent.recipe import RecipeGenerator
from harness import EvaluationRequest, LocalExecutor
from kb.records import SkillRecord
from prompts.record import PromptRecord

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F

def get_init_inputs():
    return []
"""
PROBLEMS = {
    "gated contrast": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(60, 90)
        self.tilt = nn.Parameter(torch.rand(45))

    def forward(self, x):
        a, b = self.mix(x).chunk(2, -1)
        z = F.mish(a) * torch.cos(b) + self.tilt
        return z / (1 + z.abs().amax(-1, keepdim=True)), torch.logsumexp(z * 3, -1)

def get_inputs():
    return [torch.randn(50, 60)]
""",
    "channel whitening": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, stride=2)
        self.gain = nn.Parameter(torch.rand(12, 1, 1) + 0.5)

    def forward(self, x):
        y = F.elu(self.stem(x)) * self.gain
        y = (y - y.mean(1, keepdim=True)) / (y.std(1, keepdim=True) + 0.1)
        return F.avg_pool2d(torch.tanh(y), 2).permute(0, 2, 3, 1).contiguous()

def get_inputs():
    return [torch.randn(3, 3, 33, 31)]
""",
    "masked window": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(40, 40).tril().bool())

    def forward(self, x):
        return torch.softmax(x.masked_fill(~self.mask, -1e9), -1) * 2

def get_inputs():
    return [torch.randn(6, 40, 40)]
""",
    "ranked energy": """
class Model(nn.Module):
    def forward(self, x, y, k):
        d = torch.expm1(-(x - y).square() * 0.5)
        e = torch.cumsum(F.softplus(d) * x.sigmoid(), 1)
        picked = F.log_softmax(e, -1).gather(1, k.unsqueeze(1)).squeeze(1)
        return torch.sort(e, 1)[0] * picked.unsqueeze(1), (picked * 0.3).mean()

def get_inputs():
    return [torch.randn(21, 77), torch.randn(21, 77), torch.randint(0, 77, (21,))]
""",
}


@pytest.fixture(scope="module")
def executor(scratch: Path) -> Iterator[LocalExecutor]:
    with LocalExecutor(scratch / "cache") as running:
        yield running


@pytest.mark.parametrize("name", PROBLEMS)
def test_unseen_problem_gets_a_correct_candidate(
    executor: LocalExecutor, all_skills: list[SkillRecord], name: str
) -> None:
    source = HEAD + PROBLEMS[name]
    facts = executor.describe(source)
    prompt = PromptRecord("", 0, {}, [], "", skills=all_skills)
    draft = RecipeGenerator(executor).generate(GenerationRequest(prompt, facts, source, "cpu", None, 0, 1))
    assert draft.genome is not None
    assert draft.notes["kernels"]
    verdict = executor.evaluate(EvaluationRequest(source, draft.source, timing_budget_s=0, rounds=3))
    assert verdict.status == "correct", verdict.reason
