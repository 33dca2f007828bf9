from __future__ import annotations

import re
from collections import Counter
from datetime import date
from typing import Any

from kb.scope import visible_scopes

KINDS = {"constraints": "constraint", "guidance": "guidance", "hardware": "hardware"}
PHASES = {"draft", "debug", "optimise", "any"}
BOTTLENECKS = {"memory", "compute", "latency", "overhead", "spill", "compile_error", "incorrect", "unknown"}
CONFIDENCE = {"high", "medium", "low"}
FIELDS = {"id", "title", "kind", "scope", "phase", "bottleneck", "sources", "checked", "confidence"}
MAX_WORDS = 1500
TARGETS = ("cpu", "nvidia:sm_90", "amd:gfx942", "aws-neuron", "tenstorrent", "tpu", "opencl")


def test_the_library_is_there(documents: Any) -> None:
    assert len(documents) >= 20
    assert {d.meta["kind"] for d in documents} == set(KINDS.values())


def test_front_matter_is_complete_and_typed(documents: Any) -> None:
    for document in documents:
        meta = document.meta
        extra = {"advice", "language"} if meta["kind"] in ("guidance", "hardware") else {"language"}
        assert set(meta) >= FIELDS, document.name
        assert set(meta) <= FIELDS | extra, document.name
        assert meta["id"] == document.name
        assert meta["kind"] == KINDS[document.name.split("/")[0]], document.name
        assert isinstance(meta["title"], str), document.name
        assert meta["title"], document.name
        assert meta["phase"] in PHASES, document.name
        assert meta["bottleneck"], document.name
        assert set(meta["bottleneck"]) <= BOTTLENECKS, document.name
        assert type(meta["checked"]) is date, document.name
        assert meta["confidence"] in CONFIDENCE, document.name


def test_every_document_names_its_sources(documents: Any) -> None:
    for document in documents:
        assert document.meta["sources"], document.name
        for source in document.meta["sources"]:
            assert set(source) == {"title", "url"}, document.name
            assert re.fullmatch(r"https?://[^\s]+\.[^\s]+", source["url"]), (document.name, source)


def test_scopes_are_labels_that_some_target_sees(documents: Any) -> None:
    known = frozenset[str]().union(*(visible_scopes(target) for target in TARGETS))
    for document in documents:
        assert document.meta["scope"] in known, document.name


def test_identifiers_and_titles_are_unique(documents: Any) -> None:
    for key in ("id", "title"):
        repeated = [value for value, n in Counter(d.meta[key] for d in documents).items() if n > 1]
        assert repeated == []


def test_no_document_is_too_long_or_empty(documents: Any) -> None:
    for document in documents:
        words = len(document.body.split())
        assert 150 <= words <= MAX_WORDS, (document.name, words)


def test_each_document_has_one_title_and_sections(documents: Any) -> None:
    for document in documents:
        prose = re.sub(r"```.*?```", "", document.body, flags=re.DOTALL)
        assert len(re.findall(r"^# ", prose, re.MULTILINE)) == 1, document.name
        assert len(re.findall(r"^## ", prose, re.MULTILINE)) >= 2, document.name


def test_internal_links_lead_somewhere(documents: Any) -> None:
    seen = 0
    for document in documents:
        prose = re.sub(r"```.*?```", "", document.body, flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", prose):
            if link.startswith("http"):
                continue
            seen += 1
            assert (document.path.parent / link.split("#")[0]).is_file(), (document.name, link)
    assert seen > 10


def test_guidance_gives_advice_in_the_documented_vocabulary(documents: Any, moves: set[str]) -> None:
    for document in documents:
        advice = document.meta.get("advice", [])
        if document.meta["kind"] == "guidance":
            assert advice, document.name
        for item in advice:
            assert set(item) == {"when", "move", "because"}, document.name
            assert item["when"] in BOTTLENECKS, (document.name, item)
            assert item["move"] in moves, (document.name, item)
            assert item["because"], document.name
            assert "\n" not in item["because"], document.name


def test_every_move_is_advised_by_some_document(documents: Any, moves: set[str]) -> None:
    advised = {item["move"] for d in documents for item in d.meta.get("advice", [])}
    assert moves - advised == set()


def test_no_two_documents_give_the_same_advice(documents: Any) -> None:
    """The generator acts on advice: which document retrieval brings must make a difference."""
    advice = [d.meta["advice"] for d in documents if d.meta.get("advice")]
    advised = Counter(frozenset((item["when"], item["move"]) for item in items) for items in advice)
    assert max(advised.values()) == 1


def test_measured_figures_stand_beside_a_command(documents: Any) -> None:
    for document in documents:
        if re.search(r"\bMeasured\b.{0,80}\d", document.body, re.DOTALL):
            assert re.search(r"`[^`]*(cpu_probe|timeit|lscpu)[^`]*`", document.body), document.name
