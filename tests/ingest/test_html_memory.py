"""What large pages take, and that those which would take too much are refused before they do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ingest import ingest_paths
from ingest.errors import Unreadable
from ingest.html import tree
from kb import KnowledgeBase

MEASURED = """
import re, sys
from pathlib import Path
def megabytes(name):
    return int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
from ingest.html import content, render, tree
from ingest.loaders.html import HtmlLoader
from ingest.registry import content_of
import selectolax.lexbor
path = Path(sys.argv[1])
before = megabytes("VmRSS")
text = HtmlLoader().load(content_of(path, path.read_bytes())).text
print(megabytes("VmHWM") - before, len(text))
"""
CELLS = "<table><tr><td>r{i}</td><td>{i}</td><td>x</td><td>abc</td></tr></table>\n"
CODE = '<pre><span class="n">abc</span><span class="o">=</span><span class="mi">{i}</span></pre>\n'


@pytest.mark.parametrize("row", [CELLS, CODE])
def test_what_a_megabyte_of_little_but_tags_takes(tmp_path: Path, row: str) -> None:
    """The kinds of pages with the most markup: 35 times their size, so that 20 MB take 700 MB."""
    taken = [_taken(tmp_path, row, size) for size in (1_000_000, 3_000_000)]
    assert taken[1] - taken[0] < 2 * 36


def _taken(folder: Path, row: str, size: int) -> float:
    body = "".join(row.replace("{i}", str(i)) for i in range(size // len(row)))
    page = folder / "a.html"
    page.write_text(f"<html><body><h1>T</h1>{body}</body></html>")
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(page)], capture_output=True, text=True, check=True
    )
    megabytes, characters = map(float, done.stdout.split())
    assert characters > size / 10
    return megabytes


@pytest.mark.parametrize(
    "unit", ["<p>x", "<br>", "<li>x", "<i></i>", "<a b c d e>", '<a b="c d" e=f>', "<a/b/c>"]
)
@pytest.mark.parametrize("start", ["", "<b><i><u><s><em><code><tt><big>"])
def test_no_page_takes_more_than_is_reckoned(start: str, unit: str) -> None:
    page = start + unit * (400_000 // len(unit))
    status = Path("/proc/self/status")
    before = _resident(status)
    from selectolax.lexbor import LexborHTMLParser

    parser = LexborHTMLParser(page)
    taken = _resident(status) - before
    assert parser.body is not None
    del parser
    assert taken < 1.3 * tree.tree_bytes(page) + 2_000_000


def _resident(status: Path) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_a_page_of_too_many_tags_is_refused_with_the_reason(
    kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "_MAX_TREE_BYTES", 1_000_000)
    (tmp_path / "bomb.html").write_text("<p>x" * 10_000)
    (tmp_path / "good.html").write_text("<p>x</p>" + "many words in few tags " * 10_000)
    report = ingest_paths(kb, [tmp_path / "bomb.html", tmp_path / "good.html"])
    (failure,) = report.failed
    assert failure["path"].endswith("bomb.html")
    assert "its markup would take 3 MB of memory (limit 1 MB)" in failure["error"]
    assert report.added == 1


def test_a_tag_of_endless_attributes_is_refused_at_once() -> None:
    page = "<p " + " ".join(f"a{i}=b" for i in range(100_000)) + ">words"
    with pytest.raises(Unreadable, match="more than 3000 attributes"):
        tree.parse(page)
    assert tree.parse('<p title="' + "many words " * 5000 + '">words')[0].text() == "words"
