"""What scope files say; inferred and corrected scopes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sources_support import documents, write
from sqlmodel import select

from ingest import ingest_paths
from ingest.errors import IngestError, SourceFileInvalid
from kb import KnowledgeBase
from kb.errors import NotFound
from kb.tables import ScopeCorrection
from kb.upkeep.check import check
from kb.upkeep.rescope import correct_scope
from kb.upkeep.sources import remove_source

# --- scope files ---


def test_what_a_scope_file_says(kb: KnowledgeBase, tmp_path: Path) -> None:
    root = write(
        tmp_path / "d",
        a_md="# A\n\nx\n",
        s__b_md="---\nversion: '9'\nkind: guidance\n---\n# B\n\ny\n",
        t__c_md="# C\n\nz\n",
    )
    (root / "kernelevolve-source.toml").write_text(
        'scope = "nvidia"\nkind = "hardware"\nlanguage = "cuda"\nversion = "12.4"\n'
        '[scopes]\n"t" = "Triton"\n[languages]\n"t/c.md" = "triton"\n[kinds]\n[versions]\n"t" = "3"\n'
    )
    ingest_paths(kb, [root])
    found = documents(kb)
    assert {
        p: (d.scope, d.kind, d.meta.get("language"), d.meta.get("version")) for p, d in found.items()
    } == {
        "a.md": ("nvidia", "hardware", "cuda", "12.4"),
        "s/b.md": ("nvidia", "guidance", "cuda", "9"),
        "t/c.md": ("triton", "hardware", "triton", "3"),
    }
    ingest_paths(kb, [root], defaults={"version": "13"})
    assert documents(kb)["a.md"].meta["version"] == "13"
    assert ingest_paths(kb, [root]).unchanged == 3, "what was said last is kept"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('scpoe = "x"', "unknown key 'scpoe'"),
        ("[kind]\na = 'b'", "unknown key 'kind'"),
        ("version = 3", "unknown key 'version'"),
        ("kind = 'novel'", "unknown kind 'novel'"),
        ("visibility = 'secret'", "unknown visibility 'secret'"),
        ("[scopes]\na = 3", r"\[scopes\]"),
        ("scopes = 'x'", r"\[scopes\]"),
        ("scope =", "toml"),
    ],
)
def test_a_wrong_scope_file_is_an_error(kb: KnowledgeBase, tmp_path: Path, text: str, message: str) -> None:
    root = write(tmp_path / "d", a_md="# A\n\nx\n")
    (root / "kernelevolve-source.toml").write_text(text)
    with pytest.raises(SourceFileInvalid, match=message) as caught:
        ingest_paths(kb, [root])
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_a_local_only_folder_anywhere_stays_on_the_machine(kb: KnowledgeBase, tmp_path: Path) -> None:
    root = write(tmp_path / "d", a_md="# A\n\ntiles\n", p__q__b_md="# B\n\ntiles\n")
    (root / "p" / "kernelevolve-source.toml").write_text('visibility = "local-only"\n')
    ingest_paths(kb, [root])
    assert {h.path: h.local_only for h in kb.query("tiles").hits} == {"a.md": False, "q/b.md": True}
    ingest_paths(kb, [root], visibility="shared")
    ingest_paths(kb, [root / "p" / "q" / "b.md"], visibility="shared")
    assert {h.local_only for h in kb.query("tiles").hits if h.path.endswith("b.md")} == {True}


def test_unknown_kind_of_the_caller(kb: KnowledgeBase, corpus: Path) -> None:
    with pytest.raises(IngestError, match="unknown kind"):
        ingest_paths(kb, [corpus], defaults={"kind": "novel"})


# --- inferred and corrected scopes ---

CUDA = "# Notes\n\nOn CUDA use ldmatrix and cp.async; nvcc emits PTX with wgmma.\n"


def test_an_inferred_scope_is_reported_and_corrected_without_embedding(
    kb: KnowledgeBase, tmp_path: Path, embedder: Any
) -> None:
    root = write(
        tmp_path / "d", a_md=CUDA, b_md=CUDA.replace("Notes", "Another"), c_md="# C\n\nplain tiles\n"
    )
    report = ingest_paths(kb, [root])
    assert [(e["path"], e["scope"], e["documents"]) for e in report.inferred] == [(str(root), "nvidia", 2)]
    assert "ldmatrix" in report.inferred[0]["why"]
    assert documents(kb)["a.md"].inferred
    ids = {h.chunk_id for h in kb.query("ldmatrix").hits}
    embedder.embedded.clear()
    done = correct_scope(kb, str(root / "a.md"), "AMD-HIP")
    assert (done["documents"], done["changed"], done["scope"]) == (1, 1, "amd-hip")
    assert embedder.embedded == []
    assert {h.path for h in kb.query("ldmatrix", target="amd:gfx942").hits} == {"a.md", "c.md"}
    assert {h.path for h in kb.query("ldmatrix", target="nvidia:sm_90").hits} == {"b.md", "c.md"}
    # The two differ in a word that is not a stop word: neither is folded into the other, whichever is above.
    assert len(ids) == 3
    assert ids == {h.chunk_id for h in kb.query("ldmatrix").hits}, "chunks keep their ids"
    assert check(kb).problems == []
    assert kb.notices == []


def test_correcting_what_was_inferred_leaves_the_rest_of_the_folder(
    kb: KnowledgeBase, tmp_path: Path
) -> None:
    said = "---\nscope: triton\n---\n" + CUDA
    root = write(tmp_path / "d", a_md=CUDA, b_md=said, s__c_md=CUDA)
    ingest_paths(kb, [root])
    done = correct_scope(kb, str(root), "opencl", inferred_as="nvidia")
    assert (done["documents"], done["changed"]) == (2, 2)
    found = {p: d.scope for p, d in documents(kb).items()}
    assert found == {"a.md": "opencl", "b.md": "triton", "s/c.md": "opencl"}
    (root / "a.md").write_text(CUDA + "\nmore\n")
    ingest_paths(kb, [root])
    assert documents(kb)["a.md"].scope == "opencl"


def test_a_correction_outlives_every_later_ingestion(kb: KnowledgeBase, corpus: Path) -> None:
    ingest_paths(kb, [corpus])
    correct_scope(kb, str(corpus / "rocm.md"), "triton")
    assert ingest_paths(kb, [corpus]).unchanged == 4
    (corpus / "rocm.md").write_text("---\nscope: amd-hip\n---\n# Wavefronts\n\nNew words.\n")
    ingest_paths(kb, [corpus], scope="cpu")
    assert documents(kb)["rocm.md"].scope == "triton"
    ingest_paths(kb, [corpus / "rocm.md"], visibility="local-only")  # now a source of its own
    assert documents(kb)["rocm.md"].scope == "triton"
    correct_scope(kb, str(corpus), "opencl")
    assert {d.scope for p, d in documents(kb).items()} == {"opencl"}
    with kb.session() as session:
        assert [c.location for c in session.exec(select(ScopeCorrection))] == [str(corpus)]
    correct_scope(kb, str(corpus / "guides"), "nvidia")
    (corpus / "guides" / "new.md").write_text("# New\n\nx\n")
    ingest_paths(kb, [corpus])
    assert documents(kb)["guides/new.md"].scope == "nvidia"
    remove_source(kb, str(corpus))
    ingest_paths(kb, [corpus])
    assert documents(kb)["guides/new.md"].scope == "generic", "a removed source is forgotten, corrections too"


def test_correcting_what_is_not_there(kb: KnowledgeBase, corpus: Path) -> None:
    ingest_paths(kb, [corpus])
    with pytest.raises(NotFound):
        correct_scope(kb, str(corpus.parent / "other"), "cpu")
    with pytest.raises(NotFound):
        correct_scope(kb, "nothing", "cpu")
    assert correct_scope(kb, "corpus", "cpu")["documents"] == 4, "a source by its name"


def test_documents_are_named_as_hits_name_them_after_their_source(kb: KnowledgeBase, tmp_path: Path) -> None:
    roots = [write(tmp_path / name, a_md="# A\n\nx\n", s__b_md="# B\n\ny\n") for name in ("one", "two")]
    ingest_paths(kb, roots)
    assert correct_scope(kb, "one/a.md", "amd")["location"] == str(roots[0] / "a.md")
    assert correct_scope(kb, "two/s/", "nvidia")["documents"] == 1
    with pytest.raises(NotFound, match="one of several") as raised:
        correct_scope(kb, "a.md", "cpu")
    assert str(roots[1] / "a.md") in str(raised.value.hint)
    with pytest.raises(NotFound, match="no source"):
        correct_scope(kb, "one/c.md", "cpu")
    with kb.session() as session:
        found = session.exec(select(ScopeCorrection)).all()
    assert {(c.location, c.scope) for c in found} == {
        (str(roots[0] / "a.md"), "amd"), (str(roots[1] / "s"), "nvidia"),
    }  # fmt: skip


def test_a_corrected_skill_is_seen_by_its_new_target(kb: KnowledgeBase, tmp_path: Path) -> None:
    root = tmp_path / "skills" / "s"
    root.mkdir(parents=True)
    (root / "SKILL.md").write_text("---\nname: s\ndescription: d\nscope: nvidia\n---\n# S\n\ntext\n")
    ingest_paths(kb, [root])
    correct_scope(kb, str(root), "amd")
    assert [s.name for s in kb.skills("amd:gfx942")] == ["s"]
    assert kb.skills("nvidia:sm_90") == []
