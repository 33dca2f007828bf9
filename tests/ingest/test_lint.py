from __future__ import annotations

import zipfile
from datetime import date
from pathlib import Path

import pytest

from ingest import ingest_paths
from ingest.lint import lint
from kb import KnowledgeBase
from kb.errors import NotFound

TODAY = date(2026, 11, 30)
GOOD = "---\ntitle: {0}\nscope: cpu\nchecked: 2026-11-01\n---\n# {0}\n\nText.\n"


def found(kb: KnowledgeBase, source: str | None = None) -> list[tuple[str, int, str]]:
    return [(f.path, f.line, f.rule) for f in lint(kb, source, today=TODAY)]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    root = tmp_path / "docs"
    (root / "sub").mkdir(parents=True)
    return root


def test_good_documents(kb: KnowledgeBase, docs: Path) -> None:
    (docs / "a.md").write_text(
        GOOD.format("A")
        + "\n[b](sub/b.md#part), [space](sub/with%20space.md 'title'), [web](https://example.org/x.md),\n"
        "[mail](mailto:x@example.org), [here](#a), ![image](sub), [site](/docs/x.md), [r][ref]\n"
        "`[code](nothing.md)`\n\n```\n[fenced](nothing.md)\n# not a heading\n```\n\n[ref]: <sub/b.md>\n\n"
        "# Bare\n\n## With text\n\ntext\n"
    )
    (docs / "sub" / "b.md").write_text(GOOD.format("B") + "\n[up](../a.md) [f(x)](f(x).txt)\n")
    (docs / "sub" / "with space.md").write_text(GOOD.format("C"))
    (docs / "sub" / "f(x).txt").write_text("plain text needs no front matter\n")
    ingest_paths(kb, [docs])
    assert found(kb) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# A\n\nText.\n", [("front-matter", 1)]),
        ("---\ntitle: A\n---\n# A\n\nText.\n", [("front-matter", 1)]),
        (GOOD.format("A") + "\n\n[x](gone.md)\n", [("dead-link", 11)]),
        (GOOD.format("A") + "\n![x](<gone away.png>)\n", [("dead-link", 10)]),
        (GOOD.format("A") + "\n[x]: ../gone.md\n", [("dead-link", 10)]),
        (
            GOOD.format("A") + "\n## Empty\n\n## Full\n\ntext\n\n## Last\n",
            [("empty-section", 10), ("empty-section", 16)],
        ),
        (GOOD.format("A").replace("2026-11-01", "2024-01-01"), [("stale-date", 4)]),
        (GOOD.format("A").replace("2026-11-01", "soon"), [("bad-date", 4)]),
        (GOOD.format("A").replace("2026-11-01", "2030-01-01"), [("bad-date", 4)]),
    ],
)
def test_what_is_weak(kb: KnowledgeBase, docs: Path, text: str, expected: list[tuple[str, int]]) -> None:
    (docs / "a.md").write_text(text)
    ingest_paths(kb, [docs])
    assert [(rule, line) for _, line, rule in found(kb)] == expected


def test_titles_that_several_have(kb: KnowledgeBase, docs: Path) -> None:
    (docs / "a.md").write_text(GOOD.format("Same"))
    (docs / "b.md").write_text(GOOD.format("same"))
    ingest_paths(kb, [docs])
    assert found(kb) == [("b.md", 1, "duplicate-title")]


def test_links_inside_an_archive(kb: KnowledgeBase, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.writestr("a/a.md", GOOD.format("A") + "\n[b](../b.md) [out](../../x.md) [gone](b.md)\n")
        archive.writestr("b.md", GOOD.format("B"))
    ingest_paths(kb, [tmp_path / "m.zip"])
    assert [f.detail for f in lint(kb, today=TODAY)] == ["../../x.md does not exist", "b.md does not exist"]


def test_one_source(kb: KnowledgeBase, docs: Path, corpus: Path) -> None:
    (docs / "a.md").write_text(GOOD.format("A"))
    ingest_paths(kb, [docs, corpus])
    assert found(kb, str(docs)) == []
    assert {rule for *_, rule in found(kb, "corpus")} == {"front-matter"}
    with pytest.raises(NotFound):
        lint(kb, "nothing")
