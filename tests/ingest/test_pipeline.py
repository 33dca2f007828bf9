"""A run of ingestion from the beginning to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_support import counts, snapshot
from sqlmodel import select

from ingest import ingest_paths
from kb import KnowledgeBase
from kb.change import Change
from kb.tables import Chunk, Document, Passage
from kb.upkeep.check import check


def test_ingest_is_idempotent(kb: KnowledgeBase, corpus: Path, embedder: Any) -> None:
    report = ingest_paths(kb, [corpus])
    assert counts(report) == (4, 0, 0, 0)
    assert report.failed == []
    assert report.chunks > 0
    before = snapshot(kb)
    embedder.embedded.clear()
    assert counts(ingest_paths(kb, [str(corpus)])) == (0, 0, 4, 0)
    assert embedder.embedded == []
    assert snapshot(kb) == before


def test_only_what_changed_is_embedded(kb: KnowledgeBase, corpus: Path, embedder: Any) -> None:
    ingest_paths(kb, [corpus])
    embedder.embedded.clear()
    path = corpus / "guides" / "tiling.md"
    path.write_text(path.read_text() + "\n## New part\n\nFresh words.\n")
    assert counts(ingest_paths(kb, [corpus])) == (0, 1, 3, 0)
    assert [t for t in embedder.embedded if "Fresh" not in t] == []
    assert kb.query("fresh words").hits[0].citation == "guides/tiling.md:9-11 § Tiling › New part"


def test_nothing_is_embedded_twice(kb: KnowledgeBase, tmp_path: Path, embedder: Any) -> None:
    """Whether a text comes back in its file, in another one, in a later batch, or in a later run."""
    root = tmp_path / "many"
    root.mkdir()
    for i in range(600):  # several batches
        (root / f"{i:03}.md").write_text(f"# Page\n\nText {i % 400}.\n\n# Page\n\nText {i % 400}.\n")
    ingest_paths(kb, [root])
    ingest_paths(kb, [root], scope="cpu")
    (root / "000.md").write_text("# Page\n\nText 7.\n\n# Page\n\nText 1000.\n")
    (root / "001.md").rename(root / "moved.md")
    assert counts(ingest_paths(kb, [root])) == (1, 1, 598, 1)
    with kb.session() as session:
        passages = set(session.exec(select(Passage.text)))
    assert len(passages) == 401
    assert len(embedder.embedded) == len(set(embedder.embedded)) == 401


def test_vectors_of_a_long_document_outlive_a_run_that_was_stopped(
    kb: KnowledgeBase, tmp_path: Path, embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "long.md").write_text("".join(f"# Part {i}\n\nText {i}.\n\n" for i in range(1500)))
    embed, embedded = embedder.embed, embedder.embedded

    def stopped(texts: Any) -> Any:
        if len(embedded) > 1000:
            raise KeyboardInterrupt
        return embed(texts)

    monkeypatch.setattr(embedder, "embed", stopped)
    with pytest.raises(KeyboardInterrupt):
        ingest_paths(kb, [tmp_path / "long.md"])
    monkeypatch.setattr(embedder, "embed", embed)
    assert counts(ingest_paths(kb, [tmp_path / "long.md"])) == (1, 0, 0, 0)
    assert len(embedded) == len(set(embedded)) == 1500


def test_vanished_files_are_forgotten(kb: KnowledgeBase, corpus: Path) -> None:
    ingest_paths(kb, [corpus])
    (corpus / "guides" / "tiling.md").unlink()
    assert counts(ingest_paths(kb, [corpus / "guides"])) == (0, 0, 1, 1)
    assert all(h.path != "guides/tiling.md" for h in kb.query("tiles fit the cache").hits)
    with kb.session() as session:
        assert {d.path for d in session.exec(select(Document))} == {
            "guides/vectors.txt",
            "kernel.py",
            "rocm.md",
        }


def test_forgetting_that_was_stopped_goes_on(
    kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many vanished files are forgotten in several transactions, each of which leaves a sound store."""
    monkeypatch.setattr("kb.documents._REMOVED_AT_ONCE", 2)
    root = tmp_path / "notes"
    root.mkdir()
    for i in range(7):
        (root / f"{i}.md").write_text(f"# Note {i}\n\nTiles of {i}.\n")
    ingest_paths(kb, [root])
    for i in range(1, 7):
        (root / f"{i}.md").unlink()
    forget, forgotten = Change.forget, []

    def stopped(change: Change, document_ids: Any) -> None:
        if len(forgotten) == 2:
            raise KeyboardInterrupt
        forgotten.append(document_ids)
        forget(change, document_ids)

    with monkeypatch.context() as patch:
        patch.setattr(Change, "forget", stopped)
        with pytest.raises(KeyboardInterrupt):
            ingest_paths(kb, [root])
    assert check(kb).problems == []
    assert len(kb.query("tiles").hits) == 3
    assert counts(ingest_paths(kb, [root])) == (0, 0, 1, 2)
    assert [h.path for h in kb.query("tiles").hits] == ["0.md"]


def test_a_changed_file_leaves_nothing_of_the_old_one(kb: KnowledgeBase, corpus: Path) -> None:
    ingest_paths(kb, [corpus])
    (corpus / "rocm.md").write_text("# Other\n\nSomething new.\n")
    ingest_paths(kb, [corpus])
    assert all("wavefront" not in h.text.lower() for h in kb.query("wavefront lanes", k=100).hits)
    assert kb.query("anything", target="aws-neuron", k=100).hits


def test_same_content_twice_stays_two_documents(kb: KnowledgeBase, tmp_path: Path) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text("# Same\n\nThe very same text.\n")
    ingest_paths(kb, [tmp_path / "a.md", tmp_path / "b.md"])
    (hit,) = kb.query("same text").hits
    (elsewhere,) = hit.why["also_at"]
    assert {hit.citation, elsewhere.split(": ")[1]} == {"a.md:1-3 § Same", "b.md:1-3 § Same"}
    with kb.session() as session:
        assert len(set(session.exec(select(Chunk.id)))) == 2
    (tmp_path / "a.md").write_text("# Different\n\nWords.\n")
    ingest_paths(kb, [tmp_path / "a.md"])
    assert [h.path for h in kb.query("same text").hits if "very same" in h.text] == ["b.md"]


def test_every_citation_holds_what_it_says(kb: KnowledgeBase, corpus: Path) -> None:
    ingest_paths(kb, [corpus])
    hits = kb.query("tiles vector wavefront sum", k=100).hits
    assert len(hits) >= 5
    for hit in hits:
        lines = (corpus / hit.path).read_text().split("\n")
        assert hit.text == "\n".join(lines[hit.start_line - 1 : hit.end_line])
        assert hit.citation.startswith(f"{hit.path}:{hit.start_line}-{hit.end_line}")
