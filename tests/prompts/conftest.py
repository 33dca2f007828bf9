"""A small knowledge base in memory: ranks by shared words, so that queries decide what comes back."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # what tests of several packages share

from letter_embedder import LetterEmbedder

from ingest import ingest_paths
from kb import KnowledgeBase, Settings
from kb.catalogue import Entry
from kb.records import Hit, SkillRecord
from prompts import PromptRequest

PROBLEM = """import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)

def get_inputs():
    return [torch.randn(4096, 512)]

def get_init_inputs():
    return []
"""


def make_hit(chunk_id: str, text: str, kind: str = "guidance", **kwargs: Any) -> Hit:
    path = f"docs/{chunk_id}.md"
    fields: dict[str, Any] = {
        "rank": 1, "score": 1.0, "kind": kind, "source": "docs", "path": path, "section": "", "page": None,
        "start_line": 1, "end_line": 9, "text": text, "citation": f"{path}:1-9", "chunk_id": chunk_id,
    }  # fmt: skip
    return Hit(**{**fields, **kwargs})


def make_skill(name: str, description: str) -> SkillRecord:
    return SkillRecord(
        skill_id=name, name=name, version="1", description=description, target="cpu", language="cpp",
        root=Path("/nowhere"), spec={}, body=f"How {name} works.", evidence=[], score=0.5,
        chunk_id=f"skill-{name}", citation=f"library/skills/{name}/SKILL.md:1-20",
    )  # fmt: skip


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


@dataclass
class Answer:
    hits: list[Hit]


def entry_of(number: int, hit: Hit) -> Entry:
    about = hit.meta.get("bottleneck")
    names = [about] if isinstance(about, str) else about if isinstance(about, list) else []
    return Entry(
        number, hit.kind, hit.meta.get("scope", "generic"), "", hit.path, hit.meta.get("phase", ""),
        frozenset(n for n in names if isinstance(n, str)), hit.meta.get("language", ""),
    )  # fmt: skip


@dataclass
class WordSelection:
    ids: set[str]
    taken: list[Entry]
    left_out: list[Entry]

    @property
    def documents(self) -> int:
        return len(self.ids)


@dataclass
class WordCatalogue:
    hits: list[Hit]
    digest: str = "the-only-state"

    def select(self, target: str | None, kinds: Any, fits: Any) -> WordSelection:
        ids, taken, left_out = set(), [], []
        for number, hit in enumerate(self.hits):
            if kinds is not None and hit.kind not in kinds:
                continue
            entry = entry_of(number, hit)
            if fits(entry):
                ids.add(hit.chunk_id)
            if not entry.says_nothing:
                (taken if fits(entry) else left_out).append(entry)
        return WordSelection(ids, taken, left_out)


@dataclass
class WordKnowledge:
    hits: list[Hit] = field(default_factory=list)
    skills: list[SkillRecord] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def catalogue(self) -> WordCatalogue:
        return WordCatalogue(self.hits)

    def query(
        self,
        text: str,
        *,
        target: str | None = None,
        kinds: Any = None,
        k: int = 10,
        within: Any = None,
        credited: bool = False,
    ) -> Answer:
        self.asked.append(text)
        scored = [
            (len(words(text) & words(h.text)), h)
            for h in self.hits
            if (kinds is None or h.kind in kinds) and (within is None or h.chunk_id in within.ids)
        ]
        ranked = sorted((s for s in scored if s[0]), key=lambda s: (-s[0], s[1].chunk_id))[:k]
        return Answer([replace(h, rank=i + 1, score=float(n)) for i, (n, h) in enumerate(ranked)])

    def find_skills(self, text: str, *, target: str, k: int = 8) -> list[SkillRecord]:
        self.asked.append(text)
        return [s for s in self.skills if words(text) & words(s.description)][:k]


@pytest.fixture
def knowledge() -> WordKnowledge:
    return WordKnowledge(
        hits=[
            make_hit(
                "memory", "memory bandwidth: fewer passes over softmax rows", meta={"bottleneck": ["memory"]}
            ),
            make_hit(
                "compute",
                "compute: more accumulators, softmax vectorisation",
                meta={"bottleneck": ["compute"]},
            ),
            make_hit("overview", "softmax overview on cpu: keep the row in cache"),
            make_hit("include", "undeclared identifier: include the header immintrin"),
            make_hit("rules", "rules for candidates on cpu", "constraint"),
            make_hit("chip", "cpu cache sizes and memory bandwidth", "hardware"),
        ],
        skills=[make_skill("row-softmax", "softmax of rows"), make_skill("transpose", "tiled transpose")],
    )


@pytest.fixture
def facts() -> dict[str, Any]:
    tensor = {"name": "x", "shape": [4096, 512], "dtype": "float32", "stride": [512, 1]}
    node = {"name": "n0", "op": "aten._softmax.default", "args": [], "kwargs": {}, "outputs": [tensor]}
    return {
        "name": "softmax", "inputs": [tensor], "parameters": [], "buffers": [], "outputs": [tensor],
        "nodes": [node],
        "output_refs": [], "flags": [], "eager_ms": 3.2, "bytes_min": 16_777_216, "trace_error": None,
    }  # fmt: skip


@pytest.fixture
def draft(facts: dict[str, Any]) -> PromptRequest:
    return PromptRequest(
        problem_source=PROBLEM, facts=facts, target="cpu", target_facts={"languages": ["cpp"], "cores": 2}
    )


@pytest.fixture
def child(draft: PromptRequest) -> PromptRequest:
    return replace(
        draft,
        step=5,
        parent={
            "step": 3, "source": "class ModelNew: pass", "status": "correct", "hypothesis": "one pass",
            "speedup": 1.4, "speedup_ci": [1.3, 1.5], "candidate_ms": {"median": 2.2}, "log": "",
        },
        diagnosis={"bottleneck": "memory", "evidence": ["8 of 20 GB/s"], "actions": ["fewer-passes"]},
    )  # fmt: skip


@pytest.fixture
def poison() -> Any:
    """A copy of a knowledge base with one more document that every draft retrieves."""

    def add(knowledge: WordKnowledge, text: str, **kwargs: Any) -> WordKnowledge:
        bait = "softmax overview kernel fast on cpu how to make it "
        hit = make_hit(kwargs.pop("chunk_id", "poison"), bait + text, **kwargs)
        return WordKnowledge([*knowledge.hits, hit], knowledge.skills)

    return add


@pytest.fixture
def make_knowledge() -> Any:
    """A knowledge base of random passages, some of them hard to count."""
    vocabulary = [
        "softmax",
        "memory",
        "cache",
        "größe",
        "→",
        "x" * 300,
        "0x7fff_ffff",
        "日本語",
        "\n\n",
        "    ",
    ]

    def make(rng: Any) -> WordKnowledge:
        kinds = ["guidance", "constraint", "hardware", "kernel", "trace", "document"]
        hits = [
            make_hit(
                f"c{i}",
                "softmax cpu memory " + " ".join(rng.choices(vocabulary, k=rng.randrange(1, 200))),
                rng.choice(kinds),
            )
            for i in range(rng.randrange(30))
        ]
        skills = [
            make_skill(f"s{i}", "softmax rows " * rng.randrange(1, 40)) for i in range(rng.randrange(5))
        ]
        return WordKnowledge(hits, skills)

    return make


@pytest.fixture
def kb(tmp_path: Path) -> Iterator[KnowledgeBase]:
    """A real one, empty."""
    with KnowledgeBase.open(Settings(home=tmp_path / "home"), embedder=LetterEmbedder()) as opened:
        yield opened


@pytest.fixture
def ingest(kb: KnowledgeBase, tmp_path: Path) -> Any:
    """ingest({path: text}): documents with front matter, as a person would add them."""

    def add(files: dict[str, str], **kwargs: Any) -> None:
        folder = tmp_path / "documents"
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        report = ingest_paths(kb, [folder], **kwargs)
        assert not report.failed

    return add
