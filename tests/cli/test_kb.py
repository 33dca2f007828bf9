"""`kernelevolve kb …` against a real home."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ingest import ingest_paths
from kb import KnowledgeBase, Settings


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    root = tmp_path / "notes"
    root.mkdir()
    (root / "stripes.md").write_text(
        "# Stripes\n\nInterleave \x1b[31mstripes across the channels.\n\nMore.\n"
    )
    (root / "empty.md").write_text("")
    return root


@pytest.fixture
def stocked(cli: Any, home: Path, documents: Path) -> Any:
    """Command lines against a home with one small source, without the curated library."""
    with KnowledgeBase.open(Settings(home=home)) as kb:
        ingest_paths(kb, [documents])
    return cli


def test_stats(stocked: Any, documents: Path) -> None:
    document = stocked("kb", "stats", "--json").json
    assert document["counts"]["document"] == 2
    assert document["documents_by_state"] == {"embedded": 1, "failed": 1}
    source = document["sources"][0]
    assert (source["root"], source["documents"], source["failed"], source["chunks"]) == (
        str(documents), 2, 1, 1,
    )  # fmt: skip
    assert document["bytes"] > 0
    human = stocked("kb", "stats")
    assert str(documents) in human.out
    assert "1 embedded" in human.out


def test_open_shows_a_passage_in_its_document(stocked: Any, home: Path) -> None:
    with KnowledgeBase.open(Settings(home=home)) as kb:
        chunk = kb.query("stripes").hits[0].chunk_id
    document = stocked("kb", "open", chunk, "--json").json
    assert document["chunk_id"] == chunk
    assert [line["number"] for line in document["lines"] if line["inside"]] == [1, 2, 3, 4, 5]
    human = stocked("kb", "open", chunk[:10], "--lines", "0")
    assert human.code == 0
    assert "stripes.md:1-5" in human.out
    assert "\x1b[31m" not in human.out, "a document cannot steer the terminal"
    missing = stocked("kb", "open", "abcdef0123", "--json")
    assert (missing.code, missing.json["error"]["type"]) == (2, "NotFound")


def test_check_rebuild_and_check_again(stocked: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELEVOLVE_EXACT_PASSAGES", "0")  # else there is no index
    assert stocked("kb", "rebuild", "--json").code == 0
    assert stocked("kb", "check", "--json").json["ok"] is True
    manifest = home / "chroma" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"files": {}}))
    broken = stocked("kb", "check", "--json")
    assert broken.code == 1
    assert [p["what"] for p in broken.json["problems"]] == ["vectors"]
    assert "kb rebuild" in stocked("kb", "check").err
    assert stocked("kb", "rebuild", "--json").json["chunks"] == 1
    assert stocked("kb", "check").code == 0


def test_remove_and_gc(stocked: Any, documents: Path) -> None:
    assert stocked("kb", "remove", "nothing", "--json").code == 2
    assert stocked("kb", "remove", documents, "--json").json["documents"] == 2
    freed = stocked("kb", "gc", "--json").json
    assert (freed["blobs"], freed["embeddings"]) == (1, 1)
    assert stocked("kb", "stats", "--json").json["sources"] == []
    assert (documents / "stripes.md").exists()


def test_eval_keeps_a_store_of_its_own(stocked: Any, documents: Path, home: Path, tmp_path: Path) -> None:
    bench = tmp_path / "bench.jsonl"
    gold = [{"path": "stripes.md", "substring": "across the channels"}]
    bench.write_text(json.dumps({"query": "stripes", "kind": "api", "target": "cpu", "gold": gold}))
    before = stocked("kb", "stats", "--json").json["counts"]
    found = stocked("kb", "eval", str(bench), "--corpus", str(documents), "--no-target", "--json").json
    assert (found["recall@5"], found["hit@8000"], found["kinds"]["api"]["queries"]) == (1.0, 1.0, 1)
    assert found["target_given"] is False
    assert stocked("kb", "stats", "--json").json["counts"] == before
    assert len(list((home / "benchmarks").iterdir())) == 1
    assert "1.00" in stocked("kb", "eval", str(bench), "--corpus", str(documents)).out
    with bench.open("a") as file:
        file.write('\n{"id": "lost", "query": "q", "gold": [{"path": "gone.md", "substring": "x"}]}\n')
    told = stocked("kb", "eval", str(bench), "--corpus", str(documents), "--json")
    assert told.json["unanswerable"] == [{"id": "lost", "path": "gone.md", "why": "not in the corpus"}]
    assert "question lost: gone.md: not in the corpus" in told.err
    missing = stocked("kb", "eval", str(bench), "--corpus", str(tmp_path / "none"), "--json")
    assert missing.code == 2


def test_backup_and_restore(
    stocked: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "monday.kebackup"
    done = stocked("kb", "backup", file, "--json").json
    assert done["bytes"] == file.stat().st_size
    again = stocked("kb", "backup", file, "--json")
    assert (again.code, again.json["error"]["type"]) == (2, "Refused")
    refused = stocked("kb", "restore", file, "--json")
    assert (refused.code, refused.json["error"]["type"]) == (2, "Refused")
    monkeypatch.setenv("KERNELEVOLVE_HOME", str(tmp_path / "other"))
    assert stocked("kb", "restore", file, "--json").json["documents"] == 2
    assert stocked("kb", "check", "--json").json["ok"] is True
    file.write_bytes(file.read_bytes()[:1000])
    broken = stocked("kb", "restore", file, "--force", "--json")
    assert (broken.code, broken.json["error"]["type"]) == (2, "BackupInvalid")
    assert stocked("kb", "check", "--json").json["ok"] is True


def test_scope_is_inferred_shown_and_corrected(library: Any, tmp_path: Path) -> None:
    root = tmp_path / "cuda"
    root.mkdir()
    (root / "a.md").write_text("# A\n\nOn CUDA, ldmatrix and wgmma appear in the PTX of nvcc.\n")
    human = library("ingest", root)
    assert "scope nvidia inferred" in human.err
    assert "kb scope" in human.err
    done = library("kb", "scope", root, "cpu", "--json").json
    assert (done["documents"], done["changed"], done["scope"]) == (1, 1, "cpu")
    assert library("ingest", root, "--json").json["unchanged"] == 1
    assert library("kb", "stats", "--json").json["documents_by_scope"]["cpu"] >= 1


def test_retry_failed_and_nothing_to_do(library: Any, documents: Path) -> None:
    assert library("ingest", "--json").code == 2
    assert library("ingest", documents).code == 1
    (documents / "empty.md").write_text("# Filled\n\nnow\n")
    result = library("ingest", "--retry-failed", "--json").json
    assert (result["updated"], result["failed"]) == (1, [])


def test_the_quota_is_one_clear_line(library: Any, documents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELEVOLVE_QUOTA", "1kB")
    result = library("ingest", documents, "--json")
    assert (result.code, result.json["error"]["type"]) == (3, "QuotaExceeded")
    assert "quota of 1.0 kB" in result.json["error"]["message"]


def test_a_mistyped_target_is_not_an_empty_answer(stocked: Any) -> None:
    refused = stocked("query", "stripes", "--target", "nvidai", "--json")
    assert (refused.code, refused.json["error"]["type"]) == (2, "LabelUnknown")
    assert "nvidia" in refused.json["error"]["hint"]
    told = stocked("query", "stripes", "--target", "amd:gxf942", "--json")
    assert told.code == 0
    assert "amd:gfx942" in told.json["notes"][0]
    assert "amd:gfx942" in told.err
    assert "notes" not in stocked("query", "stripes", "--target", "amd:gfx942", "--json").json
    assert stocked("skills", "list", "--target", "nvidai", "--json").code == 2
    kind = stocked("query", "stripes", "--kind", "skil", "--json")
    assert (kind.code, kind.json["error"]["hint"]) == (2, "did you mean skill?")


def test_a_new_scope_is_confirmed_and_then_known(stocked: Any, documents: Path) -> None:
    told = stocked("kb", "scope", documents, "nvidai", "--json")
    assert told.code == 0
    assert "new here; did you mean nvidia?" in told.json["notes"][0]
    assert stocked("query", "stripes", "--target", "nvidai", "--json").code == 0, "the store has it now"
    assert "notes" not in stocked("kb", "scope", documents, "nvidai", "--json").json
    assert "notes" not in stocked("kb", "scope", documents, "nvidia", "--json").json
    human = stocked("ingest", documents, "--scope", "mychip")
    assert "new here" not in human.err, "a person's correction stands"
    more = documents.parent / "more"
    more.mkdir()
    (more / "a.md").write_text("---\nscope: tensorrent\n---\n# More\n\nMore stripes.\n")
    (more / "b.md").write_text("# More\n\nStripes again.\n")
    ingested = stocked("ingest", more, "--scope", "mychip", "--json").json
    assert [n["path"] for n in ingested["notes"]] == [str(more / "b.md"), str(more / "a.md")]
    assert "did you mean tenstorrent?" in ingested["notes"][1]["notes"][0]
    assert "did you mean" not in ingested["notes"][0]["notes"][0]
