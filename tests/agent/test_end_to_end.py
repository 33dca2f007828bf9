"""The whole loop with the real judge, the real embedded generator and retrieval from the curated library."""

from __future__ import annotations

from pathlib import Path

from agent import RunStore, Search, SearchSettings
from harness import LocalExecutor
from ingest import ingest_library

PROBLEM = """import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        y = torch.tanh(x * self.scale) + x
        return y / (y.abs().amax(-1, keepdim=True) + 1.0)

def get_inputs():
    return [torch.randn(1024, 768)]

def get_init_inputs():
    return [768]
"""


def test_three_steps_of_recipe_find_a_correct_kernel(kb, tmp_path):
    problem = tmp_path / "scaled_tanh_norm.py"
    problem.write_text(PROBLEM)
    ingest_library(kb)
    settings = SearchSettings(str(problem), steps=3, drafts=2, step_timing_s=0.3)
    with LocalExecutor(tmp_path / "cache") as executor:
        result = Search(kb, executor, settings).run()
    run = RunStore(kb).load(result.run_id)
    assert result.steps == 3
    assert result.valid >= 1
    assert result.best is not None
    assert result.best.verified
    assert result.best.baselines["compile_ms"] > 0
    assert "class ModelNew" in Path(result.best.path).read_text()
    winner = run.graph.node(result.best.node_id)
    assert winner.evaluation["correctness"]["rounds"] >= 5
    assert RunStore(kb).prompt_uses(winner.node_id)
    from_skills = next(node for node in run.graph.candidates() if node.genome is not None)
    assert from_skills.correct
    assert any(use["slot"] == "skills" for use in RunStore(kb).prompt_uses(from_skills.node_id))
    judged = [node for node in run.graph.candidates() if node.correct]
    assert all(node.diagnosis["roofline"]["achieved_gbs"] > 0 for node in judged)
