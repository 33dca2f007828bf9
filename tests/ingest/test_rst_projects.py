"""What a Sphinx project's `conf.py` says, and what it may not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest import ingest_paths
from ingest.document import FileContent, LoadedDocument
from ingest.loaders.rst import RstLoader
from kb import KnowledgeBase

CONF = '''
import os
from datetime import date
project = "Tiles"
release: str = "4.2"
version = ".".join(["4", "2"])
year = date.today().year
rst_prolog = """
.. include:: /names.inc
.. |vendor| replace:: Example Corp
.. |card| replace:: |vendor| T100

This sentence stands on every page.
"""
rst_epilog = ".. |rel| replace:: release %s" % release
rst_epilog += f"""
.. |both| replace:: {project} {release}
"""
rst_epilog = rst_epilog + "\\n.. |form| replace:: {name} {{x}}\\n".format(name=project)
extlinks = {
    "issue": ("https://example.org/issues/%s", "issue %s"),
    "old": ("https://example.org/old/%s", "old-"),
    "bare": ("https://example.org/bare/%s", None),
    "odd": make_link(),
}
extlinks_detect_hardcoded_links = True
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "docs"
    (root / "guide").mkdir(parents=True)
    (root / "conf.py").write_text(CONF)
    (root / "names.inc").write_text(".. |shared| replace:: *shared memory*\n")
    return root


def load(root: Path, text: str, name: str = "guide/a.rst") -> LoadedDocument:
    path = root / name
    path.write_text(text)
    return RstLoader().load(FileContent(path, b"", text, root=root))


def words(root: Path, text: str) -> str:
    return "\n".join(s.text or "" for s in load(root, text).sections)


def test_prolog_and_epilog_define_substitutions(project: Path) -> None:
    text = words(
        project, "|vendor|, |card|, |rel|, |both|, |form|, |shared|, |version|, |release|, |nothing|.\n"
    )
    assert text == (
        "Example Corp, Example Corp T100, release 4.2, Tiles 4.2, Tiles {x}, *shared memory*, 4.2, 4.2, "
        "|nothing|."
    )
    assert "every page" not in words(project, "Title\n=====\n\nText.\n")


def test_a_document_defines_better_than_its_project(project: Path) -> None:
    assert words(project, ".. |vendor| replace:: Other\n\nBy |vendor|, not ``|vendor|``.\n") == (
        "By Other, not ``|vendor|``."
    )


def test_short_links_are_written_out(project: Path) -> None:
    document = load(
        project, "See :issue:`12`, :old:`7`, :bare:`x`, :issue:`this <3>`, ``:issue:`1```, :func:`f`.\n"
    )
    (section,) = document.sections
    assert section.text == (
        "See `issue 12 <https://example.org/issues/12>`_, `old-7 <https://example.org/old/7>`_, "
        "https://example.org/bare/x, `this <https://example.org/issues/3>`_, ``:issue:`1```, :func:`f`."
    )
    assert document.plain is not None
    assert document.plain(section.text).startswith("See issue 12, old-7, ")


@pytest.mark.parametrize(
    "conf",
    [
        "raise SystemExit",
        "rst_prolog = open('/etc/passwd').read()",
        "rst_prolog = __import__('os').popen('touch {marker}').read()",
        "a = 'x' * 10**9\nrst_prolog = a",
        "a = 'y' * 1\na = '" + "z" * 1000 + "'\n" + "a = a + a\n" * 60 + "rst_prolog = a",
        "a = '"
        + "z" * 90_000
        + "'\nrst_prolog = '%s' % (a,)\nb = '"
        + "%s" * 20_000
        + "' % ("
        + "a," * 20_000
        + ")",
        "rst_prolog = '{0.__class__}'.format('x')",
        "rst_prolog = f'{1:>1000000000}'",
        "rst_prolog = '%1000000000d' % 1",
        "rst_prolog = '%s' % 0x" + "f" * 5000,
        *(
            "a = ('x',)\n" + "a = (a, a)\n" * 60 + f"rst_prolog = {shown}"
            for shown in ("'%s' % [a]", "'{}'.format(a)", "f'{a}'", "''.join(a)", "'%s%s' % a")
        ),
        "extlinks = {**other, 'x': ('a',), 1: ('b', 'c'), 'y': [1, 2]}",
        "rst_prolog = " + "(" * 5000 + "1" + ")" * 5000,
        "rst_prolog = " + "-" * 100_000 + "1",
        "\x00 no python",
        "rst_prolog = '.. include:: /../../secret.txt'",
        "rst_prolog = '''"
        + "".join(f".. |a{i}| replace:: |a{i + 1}| |a{i + 1}|\n" for i in range(60))
        + "'''",
    ],
)
def test_a_configuration_is_read_and_never_run(project: Path, conf: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    (tmp_path / "secret.txt").write_text(".. |vendor| replace:: secret\n")
    (project / "conf.py").write_text(conf.replace("{marker}", str(marker)))
    text = words(project, "By |vendor| and |a0|. End.\n")
    assert text.startswith("By |vendor| and ")
    assert text.endswith("End.")
    assert len(text) < 10_000
    assert not marker.exists()


def test_a_change_of_the_project_is_seen(kb: KnowledgeBase, project: Path) -> None:
    (project / "guide" / "a.rst").write_text("Title\n=====\n\nThe maker is |vendor|, with |shared|.\n")
    (project / "guide" / "b.md").write_text("# Other\n\nText.\n")
    ingest_paths(kb, [project])
    assert "Example Corp" in kb.query("maker").hits[0].text
    (project / "conf.py").write_text(CONF.replace("Example Corp", "Changed Corp"))
    ingest_paths(kb, [project])
    assert "Changed Corp" in kb.query("maker").hits[0].text
    (project / "names.inc").write_text(".. |shared| replace:: distributed memory\n")
    report = ingest_paths(kb, [project])
    assert "distributed memory" in kb.query("maker").hits[0].text
    assert report.unchanged >= 2
