"""Patterns, checkouts, folders that cannot be read."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from sources_support import documents, write
from sqlmodel import select

from ingest import ingest_paths, patterns
from ingest.errors import PathMissing
from kb import KnowledgeBase, Settings
from kb.errors import NotFound
from kb.tables import Source
from kb.upkeep.rescope import correct_scope
from kb.upkeep.sources import remove_source

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
        {"path": str(repository), "notes": ["left out, as git does not track them: 1 file"]}
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
