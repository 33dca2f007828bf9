"""Scope and visibility: who says them, and that they are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_support import counts
from sqlmodel import select

from ingest import ingest_paths
from ingest.errors import IngestError, SourceFileInvalid
from kb import KnowledgeBase
from kb.tables import Document, Source


def scopes_of(kb: KnowledgeBase) -> dict[str, str]:
    with kb.session() as session:
        return {d.path: d.scope for d in session.exec(select(Document))}


def test_scope_of_front_matter_then_caller_then_file(kb: KnowledgeBase, corpus: Path) -> None:
    (corpus / "kernelevolve-source.toml").write_text(
        '[scopes]\n"guides" = "cpu"\n"guides/vectors.txt" = "Triton"\n'
    )
    ingest_paths(kb, [corpus])
    assert scopes_of(kb) == {
        "guides/tiling.md": "cpu",
        "guides/vectors.txt": "triton",
        "kernel.py": "generic",
        "rocm.md": "amd-hip",
    }
    assert counts(ingest_paths(kb, [corpus], scope="tenstorrent")) == (0, 4, 0, 0)
    assert set(scopes_of(kb).values()) == {"tenstorrent", "amd-hip"}


def test_correcting_a_scope_embeds_nothing(kb: KnowledgeBase, corpus: Path, embedder: Any) -> None:
    ingest_paths(kb, [corpus])
    embedder.embedded.clear()
    ingest_paths(kb, [corpus], scope="opencl")
    assert embedder.embedded == []
    assert {h.path for h in kb.query("tiles", target="cpu", k=50).hits} == set()
    assert "guides/tiling.md" in {h.path for h in kb.query("tiles", target="opencl", k=50).hits}


def test_scope_file_above_the_folder_counts(kb: KnowledgeBase, corpus: Path) -> None:
    (corpus / "kernelevolve-source.toml").write_text('[scopes]\n"guides" = "cpu"\n')
    ingest_paths(kb, [corpus / "guides"])
    assert set(scopes_of(kb).values()) == {"cpu"}


def test_bad_scope_file_is_an_error(kb: KnowledgeBase, corpus: Path) -> None:
    (corpus / "kernelevolve-source.toml").write_text('[scope]\na = "b"\n')
    with pytest.raises(SourceFileInvalid, match="unknown key 'scope'") as caught:
        ingest_paths(kb, [corpus])
    assert "[scopes]" in caught.value.hint


def test_visibility_is_kept_and_marks_hits(kb: KnowledgeBase, corpus: Path) -> None:
    ingest_paths(kb, [corpus / "rocm.md"], visibility="local-only")
    ingest_paths(kb, [corpus])
    hits = kb.query("tiles wavefront", k=50).hits
    assert {h.path for h in hits if h.local_only} == {"rocm.md"}
    ingest_paths(kb, [corpus / "rocm.md"])
    assert [h.local_only for h in kb.query("wavefront", k=1).hits] == [True]
    with pytest.raises(IngestError, match="visibility"):
        ingest_paths(kb, [corpus], visibility="secret")


def test_file_that_becomes_local_only_is_nowhere_shared(kb: KnowledgeBase, corpus: Path) -> None:
    ingest_paths(kb, [corpus])
    report = ingest_paths(kb, [corpus / "rocm.md"], visibility="local-only")
    assert counts(report) == (1, 0, 0, 1)
    hits = [h for h in kb.query("wavefront lanes", k=50).hits if "wavefront" in h.text]
    assert [h.local_only for h in hits] == [True]
    ingest_paths(kb, [corpus])
    hits = [h for h in kb.query("wavefront lanes", k=50).hits if "wavefront" in h.text]
    assert [h.local_only for h in hits] == [True]


def test_nested_sources_do_not_double(kb: KnowledgeBase, corpus: Path) -> None:
    ingest_paths(kb, [corpus / "guides"])
    assert counts(ingest_paths(kb, [corpus])) == (2, 0, 2, 0)
    (corpus / "guides" / "tiling.md").unlink()
    assert counts(ingest_paths(kb, [corpus])) == (0, 0, 3, 1)
    with kb.session() as session:
        assert len(session.exec(select(Source)).all()) == 2


def test_folder_that_becomes_local_only_takes_inner_sources_along(kb: KnowledgeBase, corpus: Path) -> None:
    ingest_paths(kb, [corpus / "rocm.md"])
    ingest_paths(kb, [corpus / "guides"], visibility="shared")
    ingest_paths(kb, [corpus], visibility="local-only")
    hits = kb.query("tiles wavefront sum", k=50).hits
    assert {h.path for h in hits} == {"rocm.md", "kernel.py", "tiling.md", "vectors.txt"}
    assert all(h.local_only for h in hits)
    ingest_paths(kb, [corpus], visibility="shared")
    assert {h.path for h in kb.query("tiles wavefront sum", k=50).hits if not h.local_only} == {"kernel.py"}


def test_part_of_a_local_only_folder_stays_local_only_under_another_scope(
    kb: KnowledgeBase, corpus: Path
) -> None:
    ingest_paths(kb, [corpus], scope="cpu")
    ingest_paths(kb, [corpus / "guides"], visibility="local-only")
    ingest_paths(kb, [corpus / "guides" / "tiling.md"], scope="opencl")
    ingest_paths(kb, [corpus / "guides" / "vectors.txt"], scope="cpu")
    assert scopes_of(kb) == {
        "tiling.md": "opencl", "vectors.txt": "cpu", "kernel.py": "cpu", "rocm.md": "amd-hip",
    }  # fmt: skip
    hits = kb.query("tiles vector wavefront sum", k=50).hits
    assert {h.path for h in hits if h.local_only} == {"tiling.md", "vectors.txt"}


def test_scope_is_remembered_per_source(kb: KnowledgeBase, corpus: Path) -> None:
    ingest_paths(kb, [corpus / "guides"], scope="opencl")
    assert counts(ingest_paths(kb, [corpus / "guides"])) == (0, 0, 2, 0)
    assert set(scopes_of(kb).values()) == {"opencl"}
    ingest_paths(kb, [corpus])
    assert scopes_of(kb)["tiling.md"] == "opencl"
    assert scopes_of(kb)["kernel.py"] == "generic"
    ingest_paths(kb, [corpus], scope="cpu")
    ingest_paths(kb, [corpus])
    assert set(scopes_of(kb).values()) == {"cpu", "amd-hip"}
    ingest_paths(kb, [corpus / "kernel.py"], scope="triton")
    ingest_paths(kb, [corpus])
    assert scopes_of(kb)["kernel.py"] == "triton"
