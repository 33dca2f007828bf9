"""check, open, remove, gc and quota on a real store."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text as sql
from sqlmodel import select

from kb import KnowledgeBase, Settings
from kb.errors import NotFound, QuotaExceeded, Refused, SettingsError
from kb.lexical_index import table_of
from kb.tables import Chunk, Document, Embedding, Node, Run, Source, WorkItem, now
from kb.upkeep.check import check, in_place
from kb.upkeep.gc import collect_garbage
from kb.upkeep.quota import Quota
from kb.upkeep.sources import remove_source
from kb.upkeep.view import open_chunk

Store = Callable[..., None]
INDEX = table_of("document@generic")
TEXT = "first paragraph about tiling\n\nsecond paragraph\nabout vector loads"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Every scope is too large for the exact search: there is a vector index to look after."""
    return Settings(home=tmp_path / "home", lock_timeout_s=5.0, exact_passages=0)


@pytest.fixture
def filled(kb: KnowledgeBase, store: Store) -> KnowledgeBase:
    store(kb, "a.md", TEXT)
    store(kb, "b.md", "registers spill to local memory", scope="nvidia")
    return kb


def problems(kb: KnowledgeBase) -> set[str]:
    return {p["what"] for p in check(kb).problems}


# --- check ---


def test_a_sound_store_passes(filled: KnowledgeBase) -> None:
    report = check(filled)
    assert report.problems == []
    assert (report.documents, report.chunks, report.passages, report.vectors) == (2, 3, 3, 3)
    assert filled.query("tiling").hits, "checking leaves the index usable"
    assert filled.notices == []


def execute(kb: KnowledgeBase, statement: str) -> None:
    with kb.session() as session:
        session.connection().execute(sql(statement))
        session.commit()


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (f"DELETE FROM {INDEX}_docsize WHERE id = 1", {"lexical"}),
        (f"INSERT INTO {INDEX}({INDEX}, rowid, breadcrumb, text) VALUES ('delete', 1, 'x', 'other')",
         {"lexical"}),
        (f"DROP TRIGGER {INDEX}_update", {"lexical"}),
        ("UPDATE lexical_index_state SET chunks = 3", {"lexical"}),
        ("UPDATE chunk SET start_line = 2, end_line = 2 WHERE pk = 1", {"chunk"}),
        ("UPDATE chunk SET end_line = 99 WHERE pk = 2", {"chunk"}),
        ("UPDATE document SET scope = 'amd' WHERE path = 'b.md'", {"chunk"}),
        ("UPDATE vector_index_state SET count = 7 WHERE \"partition\" = 'document@nvidia'",
         {"database", "vectors"}),
        ("UPDATE passage SET \"partition\" = 'document@nvidia' WHERE chunk_pk = 1", {"database", "vectors"}),
        ("UPDATE embedding SET vector = zeroblob(256)", {"vectors"}),
        ("UPDATE passage SET id = 'another' WHERE chunk_pk = 1", {"vectors"}),
    ],
)  # fmt: skip
def test_whatever_disagrees_is_found(filled: KnowledgeBase, statement: str, what: set[str]) -> None:
    execute(filled, statement)
    assert problems(filled) == what


def test_a_lost_blob_and_a_changed_one_are_found(filled: KnowledgeBase) -> None:
    with filled.session() as session:
        first, second = (d.text_sha for d in session.exec(select(Document).order_by(Document.id)))
    blobs = filled.home / "blobs"
    (blobs / first[:2] / first[2:]).unlink()
    (blobs / second[:2] / second[2:]).write_text("something else")
    report = check(filled)
    assert [p["what"] for p in report.problems] == ["document", "document"]
    assert not report.ok


@pytest.mark.parametrize("damage", ["gone", "manifest", "truncated"])
def test_a_damaged_index_is_found_and_left_alone_until_it_is_rebuilt(
    filled: KnowledgeBase, settings: Settings, embedder: Any, damage: str
) -> None:
    root = settings.home / "chroma"
    folder = root / json.loads((root / "manifest.json").read_text())["folder"]
    filled.close()
    if damage == "gone":
        shutil.rmtree(root)
    elif damage == "manifest":
        (root / "manifest.json").write_text("{}")
    else:
        (folder / "chroma.sqlite3").write_bytes(b"x" * 100)
    with KnowledgeBase.open(settings, embedder=embedder, repair=False) as kb:
        assert problems(kb) == {"vectors"}
        assert problems(kb) == {"vectors"}, "checking repairs nothing"
        kb.rebuild()
        assert problems(kb) == set()


def test_many_problems_are_counted_not_listed(kb: KnowledgeBase, store: Store) -> None:
    store(kb, "long.md", "\n\n".join(f"paragraph {i}" for i in range(30)))
    execute(kb, "UPDATE chunk SET start_line = 1, end_line = 1")
    report = check(kb)
    assert (len(report.problems), report.problem_count) == (20, 29)


@pytest.mark.parametrize(
    ("chunk", "start", "end", "rendered", "expected"),
    [
        ("a", 1, 1, False, True),
        ("a\nbcd", 1, 2, False, True),
        ("c", 2, 2, False, True),
        ("a", 2, 2, False, False),
        ("a\nbcd", 1, 3, False, False),
        ("a", 0, 1, False, False),
        ("e", 3, 4, True, False),
        ("rendered", 1, 3, True, True),
        ("a\ne", 3, 3, False, True),  # a table's header and a row
        ("bcd\ne", 3, 3, False, True),
        ("bcd\na", 1, 1, False, False),
    ],
)
def test_in_place(chunk: str, start: int, end: int, rendered: bool, expected: bool) -> None:
    assert in_place(["a", "bcd", "e"], chunk, start, end, rendered=rendered) == expected


def test_a_repeated_table_header_is_in_place() -> None:
    table = ["Text", "| a |", "|---|", "| 1 |", "| 2 |"]
    assert in_place(table, "| a |\n|---|\n| 2 |", 5, 5, rendered=False)
    assert not in_place(table, "| b |\n|---|\n| 2 |", 5, 5, rendered=False)


def test_blanks_of_blank_lines_are_not_kept_and_not_missed(kb: KnowledgeBase, tmp_path: Path) -> None:
    from ingest import ingest_paths

    (tmp_path / "a.md").write_text("# A\n \t\nfirst\n  \nsecond\n")
    ingest_paths(kb, [tmp_path / "a.md"])
    assert check(kb).problems == []


# --- rebuild ---


def test_rebuild_makes_everything_anew_and_embeds_nothing(filled: KnowledgeBase, embedder: Any) -> None:
    before = (filled.home / "chroma" / "manifest.json").read_text()
    found = [(h.chunk_id, h.score) for h in filled.query("tiling").hits]
    embedder.embedded.clear()
    filled.rebuild()
    assert embedder.embedded == []
    assert (filled.home / "chroma" / "manifest.json").read_text() != before
    assert [(h.chunk_id, h.score) for h in filled.query("tiling").hits] == found
    assert problems(filled) == set()


# --- open ---


def test_a_chunk_is_shown_with_the_lines_around_it(filled: KnowledgeBase) -> None:
    hit = filled.query("vector loads", k=1).hits[0]
    found = open_chunk(filled, hit.chunk_id[:12], context=1)
    assert found["chunk_id"] == hit.chunk_id
    assert found["citation"] == hit.citation
    assert found["lines"] == [
        {"number": 2, "text": "", "inside": False},
        {"number": 3, "text": "second paragraph", "inside": True},
        {"number": 4, "text": "about vector loads", "inside": True},
    ]


@pytest.mark.parametrize("chunk_id", ["abcdef123456", "nonsense", "", "%", "abc"])
def test_a_chunk_that_is_not_there(filled: KnowledgeBase, chunk_id: str) -> None:
    with pytest.raises(NotFound) as caught:
        open_chunk(filled, chunk_id)
    assert caught.value.hint


# --- remove ---


def test_a_removed_source_leaves_nothing_to_find(filled: KnowledgeBase) -> None:
    assert remove_source(filled, "test") == {"source": "/test", "documents": 2, "chunks": 3}
    assert filled.query("tiling registers").hits == []
    assert filled.stats()["counts"]["source"] == 0
    assert problems(filled) == set()


def test_a_source_is_found_by_path_or_by_a_name_that_only_it_has(kb: KnowledgeBase, tmp_path: Path) -> None:
    with kb.session() as session:
        for key in ("/x/docs", "/y/docs", "/y/other"):
            session.add(Source(key=key, name=Path(key).name, root=key))
        session.add(Source(key="library", name="library", root="/l"))
        session.commit()
    with pytest.raises(NotFound, match="2 sources"):
        remove_source(kb, "docs")
    with pytest.raises(NotFound, match="part of a source") as caught:
        remove_source(kb, "/y/docs/inner")
    assert "/y/docs" in caught.value.hint
    with pytest.raises(NotFound, match="no source"):
        remove_source(kb, "nothing")
    with pytest.raises(Refused):
        remove_source(kb, "library")
    assert remove_source(kb, "/x/../y/docs/")["source"] == "/y/docs"
    assert remove_source(kb, "docs")["source"] == "/x/docs"


# --- gc ---


def test_garbage_is_removed_and_nothing_else(
    filled: KnowledgeBase, settings: Settings, store: Store, make_embedder: Any
) -> None:
    kept = filled.blobs.put("problem of a run")
    inside = filled.blobs.put("raw answer")
    with filled.session() as session:
        session.add(
            Run(id="r", problem_name="p", problem_sha=kept, target="cpu", policy="", generator="recipe")
        )
        session.flush()
        session.add(
            Node(id="n", run_id="r", step=0, generator="", source_sha=kept, digest="", status="correct",
                 evaluation={"raw": {"sha": inside}})
        )  # fmt: skip
        session.add(Embedding(text_hash="0" * 64, model="old-model", vector=b""))
        session.commit()
    filled.blobs.put("nobody refers to this")
    (settings.home / "chroma" / "leftover").mkdir()
    (settings.home / "chroma" / "leftover" / "data").write_bytes(b"x" * 10_000)
    (settings.home / "scratch" / "unpacked").mkdir(parents=True)
    found = [h.chunk_id for h in filled.query("tiling").hits]
    report = collect_garbage(filled)
    assert (report.blobs, report.embeddings, report.folders) == (1, 1, 2)
    assert report.bytes_freed >= 10_000
    assert filled.blobs.text(kept) == "problem of a run"
    assert filled.blobs.text(inside) == "raw answer"
    assert [h.chunk_id for h in filled.query("tiling").hits] == found
    assert problems(filled) == set()
    assert collect_garbage(filled).to_json() == {
        "blobs": 0, "embeddings": 0, "adapters": 0, "folders": 0, "bytes_freed": 0,
    }  # fmt: skip


def test_texts_and_vectors_of_a_removed_source_are_garbage(filled: KnowledgeBase) -> None:
    remove_source(filled, "test")
    report = collect_garbage(filled)
    assert (report.blobs, report.embeddings) == (2, 3)
    assert not any(f.is_file() for f in (filled.home / "blobs").rglob("*"))


def test_a_fresh_blob_is_left_to_the_search_that_is_running(filled: KnowledgeBase) -> None:
    from datetime import timedelta

    with filled.session() as session:
        session.add(Run(id="r", problem_name="", problem_sha="", target="", policy="", generator=""))
        session.flush()
        session.add(WorkItem(key="k", run_id="r", state="leased", lease_until=now() + timedelta(minutes=5)))
        session.commit()
    digest = filled.blobs.put("the candidate of the step in flight")
    assert collect_garbage(filled).blobs == 0
    assert filled.blobs.text(digest)


# --- quota ---


def test_the_quota_stops_a_write_before_it_happens(settings: Settings, embedder: Any, store: Store) -> None:
    limited = settings.model_copy(update={"quota": 2_000_000})
    with KnowledgeBase.open(limited, embedder=embedder) as kb:
        store(kb, "a.md", TEXT)
        Quota(kb).reserve(1000)
        with pytest.raises(QuotaExceeded, match=r"of its quota of 2\.0 MB, and 3\.0 MB more") as caught:
            Quota(kb).reserve(3_000_000)
        assert "KERNELEVOLVE_QUOTA" in caught.value.hint
        assert kb.stats()["quota"] == 2_000_000


def test_quota_is_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELEVOLVE_QUOTA", "20 GB")
    assert Settings(home=tmp_path).quota == 20_000_000_000
    monkeypatch.setenv("KERNELEVOLVE_QUOTA", "much")
    with pytest.raises(SettingsError, match="quota"):
        Settings(home=tmp_path)


def test_chunks_of_another_document_are_not_touched_by_removing(kb: KnowledgeBase, store: Store) -> None:
    store(kb, "a.md", TEXT)
    with kb.session() as session:
        session.add(Source(key="/other", name="other", root="/other"))
        session.commit()
        before = len(session.exec(select(Chunk)).all())
    remove_source(kb, "/other")
    with kb.session() as session:
        assert len(session.exec(select(Chunk)).all()) == before
