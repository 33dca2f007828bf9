"""A stored prompt is made again byte for byte, or it is said what has changed since."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kb.upkeep.gc import referenced_blobs
from prompts import PromptRequest, Synthesizer
from prompts import rendering as rendering_module
from prompts.errors import NotReplayable
from prompts.replay import keep, replay

PAGES = {
    "rows.md": "# Rows\n\nsoftmax rows overview kernel cpu\twith a tab\n\n```\nopen fence\n",
    "chip.md": "---\nkind: hardware\n---\n\n# Chip\n\ncpu cache sizes softmax\n",
    "rules.md": "---\nkind: constraint\n---\n\n# Rules\n\nrules and limits for candidates on cpu größe\n",
}


@pytest.fixture
def filled(kb: Any, ingest: Any) -> Any:
    ingest(PAGES)
    ingest_skill = (
        "---\nname: row-softmax\ndescription: softmax of rows\n---\n\n# Row softmax\n\nsoftmax text\n"
    )
    ingest({"skills/row-softmax/SKILL.md": ingest_skill})
    return kb


@pytest.fixture
def rich(child: PromptRequest) -> PromptRequest:
    """A step that has something of everything."""
    return replace(
        child,
        depth=2,
        failed=[{"step": 1, "outcome": "incorrect", "hypothesis": "try", "error": "no"}],
        lessons=[{"step": 2, "hypothesis": "one pass", "verdict": "confirmed, 1.4x as predicted"}],
        avoid=[{"strategy": "three passes", "why": "twice the traffic"}],
        examples=[
            {"origin": "step 2", "source": "class ModelNew: x = 1", "status": "correct", "speedup": 1.2}
        ],
        idea="keep the row in registers",
    )


def stored(kb: Any, request: PromptRequest) -> tuple[Any, dict[str, Any]]:
    record = Synthesizer(kb).synthesize(request)
    kept = json.loads(json.dumps(keep(kb, record.composition)))
    assert record.provenance
    return record, kept


def test_the_same_bytes_come_again(filled, rich):
    record, kept = stored(filled, rich)
    assert record.skills
    made = replay(filled, kept, record.digest)
    assert made.prompt == record.prompt
    assert made.unchanged
    assert made.passages == len(record.provenance)
    assert made.knowledge == record.composition.knowledge
    assert made.template == rendering_module.template_sha()


def test_what_was_cut_stays_cut(filled, rich):
    whole = Synthesizer(filled).synthesize(rich)
    record, kept = stored(filled, replace(rich, budget_tokens=whole.tokens - 60))
    assert record.cut
    assert replay(filled, kept, record.digest).prompt == record.prompt


def test_new_documents_do_not_matter_but_are_said(filled, ingest, rich):
    record, kept = stored(filled, rich)
    ingest({"new.md": "# New\n\nsoftmax rows overview kernel cpu, better than all others\n"})
    made = replay(filled, kept, record.digest)
    assert made.prompt == record.prompt
    assert not made.unchanged


@pytest.mark.parametrize("name", ["rows.md", "skills/row-softmax/SKILL.md"])
def test_passages_that_are_gone_are_named(filled, ingest, rich, name):
    record, kept = stored(filled, rich)
    ingest(
        {name: "---\nname: row-softmax\ndescription: another\n---\n\n# Other\n\nsoftmax rows, rewritten\n"}
    )
    with pytest.raises(NotReplayable, match=r"has changed since .* passages are gone") as caught:
        replay(filled, kept, record.digest)
    assert name.split("/")[-1] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_template_since_changes_nothing(filled, rich, monkeypatch):
    record, kept = stored(filled, rich)
    monkeypatch.setattr(rendering_module, "template_text", lambda: "another template")
    assert replay(filled, kept, record.digest).prompt == record.prompt


def test_other_code_since_is_said(filled, rich, monkeypatch):
    record, kept = stored(filled, rich)
    monkeypatch.setattr(rendering_module, "attempt_line", lambda _: "another line")
    with pytest.raises(NotReplayable, match="this version"):
        replay(filled, kept, record.digest)


def test_every_blob_it_reads_is_named_in_what_the_event_keeps(filled, rich):
    _, kept = stored(filled, rich)
    from kb.tables import Event, Run

    with filled.session() as session:
        session.add(Run(id="r", problem_name="p", problem_sha="", target="cpu", policy="", generator=""))
        session.flush()
        session.add(Event(run_id="r", seq=0, kind="step", payload={"replay": kept}))
        session.commit()
    used = set(referenced_blobs(filled))
    data = json.loads(filled.blobs.text(kept["composition"]))
    request = data["request"]
    read = [data["template"], request["problem_source"], request["facts"], request["parent"]["source"]]
    read += [e["source"] for e in request["examples"]]
    assert {sha.removeprefix("sha256:") for sha in read} | {kept["composition"]} <= used


def test_blobs_that_are_lost_are_named(filled, rich):
    record, kept = stored(filled, rich)
    with pytest.raises(NotReplayable, match="lost"):
        replay(filled, {**kept, "composition": "0" * 64}, record.digest)
