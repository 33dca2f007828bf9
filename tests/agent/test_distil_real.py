"""From a real kernel to a recommended skill: the real judge, compiler, knowledge base and curated library."""

from __future__ import annotations

from pathlib import Path

import pytest
from search_stubs import PLACE

from agent import Search, SearchSettings
from agent.distil import distil, verify
from agent.generator import Draft, GenerationRequest
from harness import LocalExecutor
from harness.problem import Problem, load_problem
from ingest import ingest_library
from kb import KnowledgeBase

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]  # a busy machine is measured again and again

EXAMPLES = Path(__file__).parents[2] / "examples"
ROWS = """import torch
from torch import nn

ROWS = 384
COLUMNS = 4096

class Model(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) * 2.0 + x
        return y / (y.abs().amax(-1, keepdim=True) + 1.0)

def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]

def get_init_inputs():
    return []
"""


class Writes:
    """A generator that has one candidate."""

    name = "writer"
    hosted = False

    def __init__(self, source: str) -> None:
        self._source = source

    def generate(self, request: GenerationRequest) -> Draft:
        return Draft(self._source, "one walk over each row, the mask read in place")


@pytest.fixture
def executor(tmp_path: Path):
    with LocalExecutor(tmp_path / "cache") as judge:
        yield judge


def test_a_written_kernel_becomes_a_skill_that_must_win_elsewhere(
    kb: KnowledgeBase, executor: LocalExecutor, tmp_path: Path
) -> None:
    settings = SearchSettings(
        str(EXAMPLES / "problems/softmax_scale_mask.py"), steps=1, drafts=1, step_timing_s=0.5
    )
    source = (EXAMPLES / "candidates/softmax_scale_mask_cpp.py").read_text()
    run = Search(kb, executor, settings, generator=Writes(source), place=PLACE).run()
    found = distil(kb, executor, run.run_id, timing_s=2.0)
    assert (found.outcome, found.state) == ("added", "candidate"), found.reason
    assert {record["size"] for record in found.evidence} > {"own"}
    skill = kb.skill(str(found.name))
    assert skill.language == "cpp"
    assert (skill.root / "kernel.py").read_text() == source
    assert "_softmax" in skill.body or "softmax" in skill.body
    assert found.name not in [s.name for s in kb.find_skills("softmax scale mask", target="cpu")]

    again = distil(kb, executor, run.run_id, timing_s=2.0)
    assert (again.outcome, again.name, again.state) == ("strengthened", found.name, "candidate")

    other = load_problem(EXAMPLES / "problems/softmax_scale_mask.py").source
    other = other.replace("scores * self.scale + mask", "(scores * self.scale + mask).clamp(-1e30, 1e30)")
    (tmp_path / "clamped.py").write_text(other)
    verified = verify(kb, executor, str(found.name), [load_problem(tmp_path / "clamped.py")], timing_s=2.0)
    assert verified.state == "recommended"
    assert found.name in [s.name for s in kb.find_skills("softmax scale mask", target="cpu")]


def test_a_composed_winner_strengthens_or_adds_and_is_composed_anew_elsewhere(
    kb: KnowledgeBase, executor: LocalExecutor, tmp_path: Path
) -> None:
    (tmp_path / "rows.py").write_text(ROWS)
    ingest_library(kb)
    run = Search(
        kb, executor, SearchSettings(str(tmp_path / "rows.py"), steps=1, drafts=1, step_timing_s=0.5)
    ).run()
    found = distil(kb, executor, run.run_id, timing_s=0.5)
    assert found.outcome in ("added", "strengthened"), found.reason
    assert {tuple(map(tuple, record["shapes"])) for record in found.evidence} > {((384, 4096),)}
    other = Problem("other", ROWS.replace("torch.tanh(x) * 2.0 + x", "torch.sigmoid(x) - x"))
    verified = verify(kb, executor, str(found.name), [other], timing_s=0.5)
    assert [r["status"] for r in verified.measured if r["problem"] == "other"] == ["correct"]
