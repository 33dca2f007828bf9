"""Two stages: the index names the documents for platform, phase and bottleneck; passages come from those."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prompts import PromptRequest, Synthesizer
from prompts.request import PromptRequest as Request
from prompts.staging import LEVELS, languages_of, level_of

WORDS = "softmax rows memory bandwidth kernel cpu fast"


def page(title: str, **meta: Any) -> str:
    front = "".join(f"{key}: {value}\n" for key, value in {"title": title, **meta}.items())
    return f"---\n{front}---\n\n# {title}\n\n{title} {WORDS}\n"


def shown(kb: Any, request: PromptRequest) -> set[str]:
    record = Synthesizer(kb).synthesize(request)
    return {p.citation.split(":")[0].removesuffix(".md") for p in record.provenance}


@pytest.fixture
def library(kb: Any, ingest: Any) -> Any:
    ingest(
        {
            "memory.md": page("Traffic", kind="guidance", bottleneck="[memory]", phase="optimise"),
            "compute.md": page("Lanes", kind="guidance", bottleneck="[compute]", phase="optimise"),
            "both.md": page("Tiles", kind="guidance", bottleneck="[memory, compute]"),
            "debug.md": page("Sanitizers", kind="guidance", phase="debug"),
            "plain.md": page("Notes"),
            "triton.md": page("Programs", kind="guidance", scope="triton"),
            "rules-cpp.md": page("Rules", kind="constraint", scope="cpu", bottleneck="[incorrect]"),
            "rules-triton.md": page("Interpreter", kind="constraint", scope="cpu", language="triton"),
            "wave.md": page("Wavefronts", kind="guidance", scope="amd"),
            "neuron.md": page("Engines", kind="document", scope="aws-neuron"),
            "hopper.md": page("Hopper", kind="hardware", scope='"nvidia:sm_90"'),
        }
    )
    return kb


@pytest.fixture
def on_cpu(draft: PromptRequest) -> PromptRequest:
    return replace(draft, target_facts={"languages": ["cpp", "triton"], "interpreted": "triton"})


def test_a_draft_sees_the_platform_and_no_other(library, on_cpu):
    assert shown(library, on_cpu) == {"memory", "compute", "both", "plain", "rules-cpp"}


def test_an_interpreted_language_comes_with_a_parent_that_is_written_in_it(library, on_cpu, child):
    parent = {**child.parent, "source": "@triton.jit\ndef kernel(): pass"}
    found = shown(library, replace(on_cpu, parent=parent))
    assert found >= {"triton", "rules-triton"}
    assert languages_of(replace(on_cpu, parent=parent)) == ("triton",)


def test_a_gpu_gets_no_notes_about_the_interpreter(library, draft):
    gpu = replace(draft, target="nvidia:sm_90", target_facts={"languages": ["triton"]})
    found = shown(library, gpu)
    assert found >= {"triton", "hopper"}
    assert not found & {"rules-triton", "rules-cpp", "wave", "neuron"}


def test_the_dominant_bottleneck_is_served_and_the_others_are_deferred(library, on_cpu, child):
    step = replace(on_cpu, parent=child.parent, diagnosis=child.diagnosis)
    record = Synthesizer(library).synthesize(step)
    guidance = [p.citation.split(":")[0] for p in record.provenance if p.slot == "guidance"]
    assert {"memory.md", "both.md"} <= set(guidance)
    assert "compute.md" not in guidance
    assert record.deferred == {"compute": 1}
    assert "rules-cpp" in shown(library, step)  # rules hold whatever the bottleneck is


def test_a_bottleneck_that_no_document_names_defers_nothing(library, on_cpu, child):
    step = replace(on_cpu, parent=child.parent, diagnosis={"bottleneck": "latency"})
    record = Synthesizer(library).synthesize(step)
    assert record.deferred == {}
    assert {"memory", "compute"} <= shown(library, step)


def test_debugging_is_for_failures(library, on_cpu, child):
    failing = {"bottleneck": "incorrect", "error": "max error 3", "evidence": [], "actions": []}
    assert "debug" not in shown(library, replace(on_cpu, parent=child.parent, diagnosis=child.diagnosis))
    assert "debug" in shown(library, replace(on_cpu, parent=child.parent, diagnosis=failing))


def test_what_was_consulted_is_on_record(library, on_cpu):
    record = Synthesizer(library).synthesize(on_cpu)
    by_purpose = {c.purpose: c.documents for c in record.consulted}
    assert by_purpose["overview of the operators"] == 4
    assert by_purpose["rules of the target"] == 1
    assert by_purpose["kernels for the operators"] == 0


def test_specificity_rises_with_depth(kb, ingest, draft, child):
    code = "```python\n" + "x = 1\n" * 5 + "```\n"
    ingest(
        {
            "overview.md": page("General", kind="guidance", phase="overview"),
            "chip.md": page("Chip", kind="guidance", phase="architecture"),
            "tune.md": page("Tuning", kind="guidance") + f"\n## Details\n\nTuning details {WORDS}\n",
            "sample.md": page("Sample", kind="guidance") + f"\n## Code\n\nSample {WORDS}\n\n{code}",
        }
    )
    first = []
    for depth in range(4):
        request = replace(draft, depth=depth, parent=child.parent if depth else None)
        record = Synthesizer(kb).synthesize(request)
        first.append(next(p.citation for p in record.provenance if p.slot == "guidance").split(":")[0])
        assert record.level == LEVELS[depth]
    assert first == ["overview.md", "chip.md", "tune.md", "sample.md"]


@pytest.mark.parametrize(
    ("depth", "parent", "level"), [(0, False, 0), (0, True, 1), (2, True, 2), (9, True, 3)]
)
def test_level_of_a_step(draft: Request, child: Request, depth: int, parent: bool, level: int) -> None:
    request = replace(draft, depth=depth, parent=child.parent if parent else None)
    assert level_of(request) == level


def test_more_is_asked_for_where_there_is_more_room(knowledge, make_knowledge, draft):
    import random

    full = make_knowledge(random.Random(3))
    few = len(Synthesizer(full).synthesize(replace(draft, budget_tokens=16_000)).provenance)
    record = Synthesizer(full).synthesize(replace(draft, budget_tokens=1_000_000))
    assert len(record.provenance) > few
    assert record.cut == []
