"""reStructuredText that other files are part of."""

from __future__ import annotations

from pathlib import Path

import pytest
from rst_support import load, text_of

from ingest import ingest_paths
from ingest.document import FileContent, LoadedDocument
from ingest.loaders.rst import RstLoader
from ingest.registry import loader_for
from kb import KnowledgeBase
from kb.upkeep.check import check


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "docs"
    (root / "sub").mkdir(parents=True)
    (root / "kernel.py").write_text("import x\n\n# start\ndef f():\n    return 1\n\n# end\n")
    (root / "part.rst").write_text(".. |v| replace:: seven\n\nShared words.\n")
    (root / "sub" / "piece.inc").write_text("Piece of |v|.\n")
    (tmp_path / "secret.txt").write_text("secret words\n")
    return root


def read(source: Path, text: str, *, whole: bool = True) -> LoadedDocument:
    path = source / "sub" / "a.rst"
    path.write_text(text)
    return load(text, str(path), source if whole else path)


def test_literally_included_lines(source: Path) -> None:
    for option in ("pyobject: f", "lines: 4-5", "start-after: # start\n   :end-before: # end"):
        document = read(source, f".. literalinclude:: ../kernel.py\n   :language: python\n   :{option}\n")
        assert "```python\ndef f():\n    return 1\n" in text_of(document), option
        assert "import x" not in text_of(document)
        assert (document.sections[0].start_line, document.sections[0].end_line) == (1, 1)


def test_included_pieces_are_read_in_place_and_documents_cited_under_their_own_name(source: Path) -> None:
    document = read(source, ".. include:: /part.rst\n\n.. include:: piece.inc\n\nEnd with |v|.\n")
    assert "Piece of seven." in text_of(document)
    assert "End with seven." in text_of(document)
    assert "Included here: /part.rst" in text_of(document)
    assert "Shared words." not in text_of(document)
    alone = read(source, ".. include:: piece.inc\n", whole=False)
    assert "Piece of" in text_of(alone)


@pytest.mark.parametrize("name", ["../../secret.txt", "/../secret.txt", "{root}/../secret.txt", "link.txt"])
@pytest.mark.parametrize("directive", ["include", "literalinclude"])
def test_files_outside_the_source_are_refused(source: Path, name: str, directive: str) -> None:
    (source / "sub" / "link.txt").symlink_to(source.parent / "secret.txt")
    name = name.replace("{root}", "/../" * 9 + str(source))
    document = read(source, f"Text.\n\n.. {directive}:: {name}\n")
    assert "secret" not in text_of(document)
    assert any("outside the source" in note for note in document.notes)
    assert all(p.is_relative_to(source) for p in RstLoader().dependencies(source / "sub" / "a.rst", source))


def test_circles_and_missing_files_are_named(source: Path) -> None:
    (source / "sub" / "b.inc").write_text(".. include:: c.inc\n\nB.\n")
    (source / "sub" / "c.inc").write_text(".. include:: b.inc\n\nC.\n")
    document = read(
        source, ".. include:: b.inc\n\n.. include:: gone.inc\n\n.. include:: a.rst\n", whole=False
    )
    assert "B." in text_of(document)
    assert "C." in text_of(document)
    assert any("includes itself" in n for n in document.notes)
    assert any("gone.inc" in n and "No such file" in n for n in document.notes)
    assert RstLoader().dependencies(source / "sub" / "a.rst", source) == [
        source / "sub" / name for name in ("b.inc", "c.inc", "gone.inc")
    ]


def test_pieces_without_suffix_of_their_own_are_recognised() -> None:
    for name, text in (("a.txt", ".. note::\n\n   x\n"), ("b.inc", "See :ref:`x`.\n")):
        assert loader_for(FileContent(Path(name), b"", text)).name == "rst"
    assert loader_for(FileContent(Path("c.txt"), b"", "plain text")).name == "text"


def test_a_change_in_an_included_file_is_seen(kb: KnowledgeBase, source: Path) -> None:
    (source / "sub" / "a.rst").write_text("Title\n=====\n\n.. include:: piece.inc\n")
    (source / "b.rst").write_text("Other\n=====\n\nText.\n")
    ingest_paths(kb, [source])
    assert "Piece of" in kb.query("piece").hits[0].text
    (source / "sub" / "piece.inc").write_text("Quite another sentence.\n")
    report = ingest_paths(kb, [source])
    assert (report.updated, report.unchanged) == (1, 3)
    hit = kb.query("another sentence").hits[0]
    assert (hit.path, hit.start_line, hit.end_line) == ("sub/a.rst", 1, 4)
    assert check(kb).problems == []
