"""Patterns, checkouts, what scope files say, document states and corrected scopes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import select

from ingest import ingest_paths, patterns
from ingest.errors import IngestError, PathMissing, SourceFileInvalid
from kb import KnowledgeBase, Settings
from kb.errors import EmbeddingFailed, NotFound, QuotaExceeded
from kb.tables import Document, ScopeCorrection, Source
from kb.upkeep.check import check
from kb.upkeep.rescope import correct_scope
from kb.upkeep.sources import remove_source


def documents(kb: KnowledgeBase) -> dict[str, Document]:
    with kb.session() as session:
        return {d.path: d for d in session.exec(select(Document))}


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_md", ".md").replace("_rst", ".rst")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


# --- patterns ---


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("/r/**/*.md", ["a.md", "b/a.md", "b/c/a.md"], ["a.rst", "a.md/x"]),
        ("/r/*.md", ["a.md"], ["b/a.md"]),
        ("/r/[ab]?.md", ["ax.md", "bx.md"], ["cx.md", "a.md"]),
        ("/r/[!a].md", ["b.md"], ["a.md"]),
        ("/r/a*/**", ["ab/c/d", "ab/c"], ["b/c"]),
        ("/r/**/x/*.md", ["x/a.md", "b/x/a.md"], ["x/y/a.md"]),
        ("/r/a[.*", ["a[.md"], ["a.md"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], other: list[str]) -> None:
    folder, expression = patterns.split(pattern)
    assert folder == Path("/r")
    assert [p for p in matching + other if expression.fullmatch(p)] == matching


def test_a_pattern_looks_at_nothing_else(kb: KnowledgeBase, tmp_path: Path) -> None:
    root = write(tmp_path / "d", a_md="# A\n\nx\n", s__b_md="# B\n\ny\n", c_rst="C\n=\n\nz\n")
    ingest_paths(kb, [root / "c.rst", f"{root}/**/*.md"])
    ingest_paths(kb, [root])
    assert len(documents(kb)) == 3
    (root / "s" / "b.md").unlink()
    (root / "c.rst").unlink()
    report = ingest_paths(kb, [f"{root}/**/*.md"])
    assert (report.unchanged, report.removed) == (1, 1), "c.rst was not asked about"
    assert {Path(p).name for p in documents(kb)} == {"a.md", "c.rst"}


def test_a_pattern_that_matches_nothing(kb: KnowledgeBase, tmp_path: Path) -> None:
    with pytest.raises(PathMissing, match="no file matches"):
        ingest_paths(kb, [f"{tmp_path}/**/*.md"])
    with pytest.raises(PathMissing, match="no file matches"):
        ingest_paths(kb, [f"{tmp_path}/nowhere/*.md"])


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(kb: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "a[1].md").write_text("# A\n\nx\n")
    assert ingest_paths(kb, [tmp_path / "a[1].md"]).added == 1


def test_the_home_folder_is_no_source(kb: KnowledgeBase, settings: Settings, tmp_path: Path) -> None:
    write(tmp_path, a_md="# A\n\nx\n")
    ingest_paths(kb, [tmp_path])
    ingest_paths(kb, [tmp_path])
    assert set(documents(kb)) == {"a.md"}
    write(settings.home / "runs" / "r", b_md="# B\n\nx\n")
    assert ingest_paths(kb, [settings.home / "runs"]).added == 1, "a part of it that is named is read"


# --- checkouts ---


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = write(
        tmp_path / "repo", docs__a_md="# A\n\ntracked\n", build__out_md="# Out\n\nbuilt\n", b_md="# B\n\nx\n"
    )
    (root / ".gitignore").write_text("build/\n")
    git(root, "init", "-q")
    git(root, "add", "docs", ".gitignore")
    git(root, "commit", "-qm", "one")
    return root


def test_only_tracked_files_of_a_checkout_are_read(kb: KnowledgeBase, repository: Path) -> None:
    report = ingest_paths(kb, [repository])
    assert set(documents(kb)) == {"docs/a.md"}
    assert report.notes == [
        {"path": str(repository), "notes": ["1 files that git does not track are left out"]}
    ]
    with kb.session() as session:
        assert re.fullmatch(r"[0-9a-f]{40}", session.exec(select(Source)).one().version)
    git(repository, "add", "b.md")
    git(repository, "commit", "-qm", "two")
    assert (ingest_paths(kb, [repository]).added, len(documents(kb))) == (1, 2)


def test_a_folder_or_file_without_tracked_files_is_read_all_the_same(
    kb: KnowledgeBase, repository: Path
) -> None:
    assert ingest_paths(kb, [repository / "build"]).added == 1
    assert ingest_paths(kb, [repository / "b.md"]).added == 1


def test_a_checkout_below_the_folder(kb: KnowledgeBase, repository: Path) -> None:
    write(repository.parent, top_md="# Top\n\nx\n")
    inner = write(repository / "docs" / "inner", n_md="# N\n\nx\n", m_md="# M\n\nx\n")
    git(inner, "init", "-q")
    git(inner, "add", "n.md")
    ingest_paths(kb, [repository.parent])
    assert set(documents(kb)) == {"repo/docs/a.md", "top.md", "repo/docs/inner/n.md"}, (
        "the innermost checkout decides"
    )


def test_a_checkouts_own_configuration_runs_nothing(
    kb: KnowledgeBase, repository: Path, tmp_path: Path
) -> None:
    hook = tmp_path / "hook.sh"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(hook))
    ingest_paths(kb, [repository])
    assert set(documents(kb)) == {"docs/a.md"}
    assert not (tmp_path / "ran").exists()


def test_links_out_of_a_checkout_are_not_followed(
    kb: KnowledgeBase, repository: Path, tmp_path: Path
) -> None:
    write(tmp_path / "private", key_md="# Key\n\nsecret\n")
    (repository / "docs" / "folder").symlink_to(tmp_path / "private")
    (repository / "docs" / "file.md").symlink_to(tmp_path / "private" / "key.md")
    (repository / "docs" / "inside.md").symlink_to("../b.md")
    (repository / "docs" / "circle.md").symlink_to("circle.md")
    git(repository, "add", "docs")
    report = ingest_paths(kb, [repository / "docs"])
    assert {p for p, d in documents(kb).items() if d.state == "embedded"} == {"a.md", "inside.md"}
    assert {Path(f["path"]).name: f["error"] for f in report.failed} == {
        "folder": "a link that leads out of the checkout",
        "file.md": "a link that leads out of the checkout",
        "circle.md": "Too many levels of symbolic links",
    }


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_name_is_not_the_current_folder(
    kb: KnowledgeBase, corpus: Path, monkeypatch: pytest.MonkeyPatch, empty: str
) -> None:
    monkeypatch.chdir(corpus)
    with pytest.raises(PathMissing, match="empty"):
        ingest_paths(kb, [empty])
    ingest_paths(kb, ["."])
    with pytest.raises(NotFound, match="empty"):
        correct_scope(kb, empty, "cpu")
    with pytest.raises(NotFound, match="empty"):
        remove_source(kb, empty)
    assert len(documents(kb)) == 4


def test_a_link_in_a_circle_is_a_wrong_path(kb: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(PathMissing, match="circle"):
        ingest_paths(kb, [tmp_path / "circle"])
    with pytest.raises(NotFound):
        correct_scope(kb, str(tmp_path / "circle"), "cpu")


@pytest.mark.parametrize("how", ["broken", "missing"])
def test_git_that_refuses_is_named(
    kb: KnowledgeBase, repository: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "broken":
        (repository / ".git" / "config").write_text("[broken\n")
    else:
        monkeypatch.setenv("PATH", "/nonexistent")
    report = ingest_paths(kb, [repository])
    assert "not only the tracked ones" in report.notes[0]["notes"][0]
    assert set(documents(kb)) == {"docs/a.md", "build/out.md", "b.md"}


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
    root = write(tmp_path / "d", a_md=CUDA, b_md=CUDA.replace("Notes", "More"), c_md="# C\n\nplain tiles\n")
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
    assert {h.chunk_id for h in kb.query("ldmatrix").hits} == ids
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


def test_a_corrected_skill_is_seen_by_its_new_target(kb: KnowledgeBase, tmp_path: Path) -> None:
    root = tmp_path / "skills" / "s"
    root.mkdir(parents=True)
    (root / "SKILL.md").write_text("---\nname: s\ndescription: d\nscope: nvidia\n---\n# S\n\ntext\n")
    ingest_paths(kb, [root])
    correct_scope(kb, str(root), "amd")
    assert [s.name for s in kb.skills("amd:gfx942")] == ["s"]
    assert kb.skills("nvidia:sm_90") == []


# --- states ---


def test_states_say_how_far_a_document_came(kb: KnowledgeBase, corpus: Path, embedder: Any) -> None:
    real = embedder.embed

    def broken(texts: Any) -> Any:
        raise EmbeddingFailed("the endpoint is down")

    embedder.embed = broken
    with pytest.raises(EmbeddingFailed):
        ingest_paths(kb, [corpus])
    found = documents(kb)
    assert {(d.state, d.error) for d in found.values()} == {("parsed", "the endpoint is down")}
    assert kb.stats()["counts"]["chunk"] == 0
    embedder.embed = real
    report = ingest_paths(kb, [], retry_failed=True)
    assert (report.added, report.updated) == (4, 0)
    assert {(d.state, d.error) for d in documents(kb).values()} == {("embedded", "")}


def test_retrying_looks_only_at_what_failed(kb: KnowledgeBase, corpus: Path) -> None:
    for name in ("one.md", "guides/two.md", "gone.md"):
        (corpus / name).write_bytes(bytes(range(256)) * 8)
    (corpus / "top.txt").write_text("text\n")
    assert len(ingest_paths(kb, [corpus]).failed) == 3
    (corpus / "one.md").write_text("# One\n\nmended\n")
    (corpus / "guides" / "two.md").write_text("# Two\n\nmended\n")
    (corpus / "gone.md").unlink()
    (corpus / "rocm.md").write_text("# Changed\n\nbut nobody asked\n")
    (corpus / "new.md").write_text("# New\n\nnobody asked\n")
    assert ingest_paths(kb, [f"{corpus}/*.txt"], retry_failed=True).updated == 0
    report = ingest_paths(kb, [corpus / "guides"], retry_failed=True)
    assert (report.updated, report.removed, report.failed) == (1, 0, [])
    report = ingest_paths(kb, [], retry_failed=True)
    assert (report.added, report.updated, report.removed, report.unchanged) == (0, 1, 1, 0)
    assert set(documents(kb)) == {
        "guides/tiling.md", "guides/vectors.txt", "guides/two.md", "kernel.py", "rocm.md", "one.md",
        "top.txt",
    }  # fmt: skip
    assert kb.query("wavefront lanes").hits


def test_retrying_members_of_archives(kb: KnowledgeBase, tmp_path: Path) -> None:
    import zipfile

    def pack(bad: bytes) -> None:
        with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
            archive.writestr("good.md", "# G\n\nx\n")
            archive.writestr("bad.md", bad)

    pack(bytes(range(256)) * 8)
    assert len(ingest_paths(kb, [tmp_path / "m.zip"]).failed) == 1
    pack(b"# B\n\nmended\n")
    report = ingest_paths(kb, [], retry_failed=True)
    assert (report.updated, report.removed, report.failed) == (1, 0, [])
    assert set(documents(kb)) == {"m.zip!good.md", "m.zip!bad.md"}


def test_the_quota_stops_an_ingestion_that_can_go_on_later(
    settings: Settings, tmp_path: Path, embedder: Any
) -> None:
    root = write(
        tmp_path / "d", **{f"{i}_md": f"# D{i}\n\n" + f"tiles {i} lanes\n\n" * 1600 for i in range(8)}
    )
    limited = settings.model_copy(update={"quota": 2_500_000})
    with KnowledgeBase.open(limited, embedder=embedder) as kb, pytest.raises(QuotaExceeded, match="quota"):
        ingest_paths(kb, [root])
    size = sum(f.stat().st_size for f in settings.home.rglob("*") if f.is_file())
    assert size <= 2_500_000
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        assert ingest_paths(kb, [root]).failed == []
        assert len(documents(kb)) == 8
        assert check(kb).problems == []


INTERRUPTED = """
import sys
sys.path.insert(0, sys.argv[3])
from conftest import HashEmbedder
from kb import KnowledgeBase, Settings
from ingest import ingest_paths
kb = KnowledgeBase.open(Settings(home=sys.argv[1]), embedder=HashEmbedder())
print("open", flush=True)
ingest_paths(kb, [sys.argv[2]])
"""


@pytest.mark.full
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_anywhere_and_run_again(
    settings: Settings, tmp_path: Path, embedder: Any, kill: signal.Signals
) -> None:
    import random
    import tarfile

    root = tmp_path / "many"
    for i in range(60):
        parts = "\n".join(f"## Part {j}\n\ntiles {i} lanes {j}\n" for j in range(6))
        write(root / f"f{i % 5}", **{f"{i:03}_md": f"# Document {i}\n\n{parts}"})
    with tarfile.open(root / "packed.tar.gz", "w:gz") as archive:
        archive.add(root / "f0", "inner")
    command = [sys.executable, "-c", INTERRUPTED, str(settings.home), str(root), str(Path(__file__).parent)]
    draw = random.Random(int(kill))
    for _ in range(8):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(draw.uniform(0, 0.8))
        process.send_signal(kill)
        process.wait()
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        ingest_paths(kb, [root])
        assert check(kb).problems == []
        assert set(kb.stats()["documents_by_state"]) == {"embedded"}
        found = [[(h.chunk_id, h.score) for h in kb.query(q, k=50).hits] for q in ("tiles 3", "lanes 5 part")]
    with KnowledgeBase.open(Settings(home=tmp_path / "clean"), embedder=embedder) as kb:
        ingest_paths(kb, [root])
        clean = [[(h.chunk_id, h.score) for h in kb.query(q, k=50).hits] for q in ("tiles 3", "lanes 5 part")]
    assert found == clean
    assert not (settings.home / "scratch").exists()


UPKEEP = """
import sys
sys.path.insert(0, sys.argv[3])
from conftest import HashEmbedder
from kb import KnowledgeBase, Settings
from ingest import ingest_paths
from kb.upkeep.gc import collect_garbage
from kb.upkeep.rescope import correct_scope
from kb.upkeep.sources import remove_source
kb = KnowledgeBase.open(Settings(home=sys.argv[1]), embedder=HashEmbedder())
root, what = sys.argv[2], sys.argv[4]
print("open", flush=True)
if what == "scope":
    for label in ("cpu", "nvidia", "triton", "amd"):
        correct_scope(kb, root, label)
elif what == "remove":
    remove_source(kb, root)
    ingest_paths(kb, [root])
elif what == "gc":
    collect_garbage(kb)
    kb.rebuild()
else:
    for _ in range(5):
        kb.query("tiles lanes")
"""


@pytest.mark.full
def test_upkeep_killed_anywhere_leaves_a_sound_store(
    settings: Settings, tmp_path: Path, embedder: Any
) -> None:
    import random

    root = tmp_path / "many"
    for i in range(40):
        parts = "\n".join(f"## Part {j}\n\ntiles {i} lanes {j}\n" for j in range(6))
        write(root, **{f"{i:03}_md": f"# Document {i}\n\n{parts}"})
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        ingest_paths(kb, [root])
    draw = random.Random(7)
    command = [sys.executable, "-c", UPKEEP, str(settings.home), str(root), str(Path(__file__).parent)]
    for what in ["scope", "remove", "gc", "query"] * 4:
        process = subprocess.Popen([*command, what], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(draw.uniform(0, 0.6))
        process.send_signal(signal.SIGKILL)
        assert b"Traceback" not in process.communicate()[1]
        with KnowledgeBase.open(settings, embedder=embedder) as kb:
            assert check(kb).problems == [], what
            ingest_paths(kb, [root])
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        ingest_paths(kb, [root])
        assert len(documents(kb)) == 40
        assert {h.path for h in kb.query("tiles 3", k=50).hits}


@pytest.mark.full
def test_everything_at_once(settings: Settings, tmp_path: Path, embedder: Any) -> None:
    """Processes that ingest, tidy, correct and ask share a home: all end well, and the store is sound."""
    root = tmp_path / "many"
    for i in range(30):
        write(root, **{f"{i:03}_md": f"# Document {i}\n\ntiles {i} lanes\n"})
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        ingest_paths(kb, [root])
    command = [sys.executable, "-c", UPKEEP, str(settings.home), str(root), str(Path(__file__).parent)]
    processes = [
        subprocess.Popen([*command, what], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for what in ("remove", "gc", "query", "query")
    ]
    errors = [p.communicate(timeout=120)[1].decode() for p in processes]
    assert [p.returncode for p in processes] == [0] * 4, errors
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        assert check(kb).problems == []
        assert len(documents(kb)) == 30


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_may_not_be_read(kb: KnowledgeBase, corpus: Path) -> None:
    (corpus / "guides").chmod(0)
    try:
        report = ingest_paths(kb, [corpus])
    finally:
        (corpus / "guides").chmod(0o755)
    assert report.failed == [{"path": str(corpus / "guides"), "error": "the folder cannot be listed"}]
