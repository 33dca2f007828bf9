"""Kinds of files that vendors publish beside the common ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.document import LoadedDocument
from ingest.errors import Unsupported
from ingest.registry import content_of, load_file


def loaded(tmp_path: Path, name: str, text: str) -> tuple[str, LoadedDocument]:
    path = tmp_path / name
    loader, document = load_file(content_of(path, text.encode(), tmp_path))
    return loader.name, document


TEMPLATE = """#pragma once
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
/// Loads a tile.
template <typename T, int BLOCK = 128>
__device__ T load_tile(const T* ptr, int n) {
  return ptr[n];
}
"""


@pytest.mark.parametrize("suffix", [".cuh", ".hip", ".inc", ".tpp", ".ipp", ".inl", ".mm"])
def test_pieces_of_c(tmp_path: Path, suffix: str) -> None:
    loader, document = loaded(tmp_path, f"tile{suffix}", TEMPLATE)
    assert loader == "c"
    assert any("load_tile(" in section.heading_path for section in document.sections)
    assert document.meta["language"] == ("hip" if suffix == ".hip" else "cuda")


def test_a_piece_of_another_format_is_not_taken_for_c(tmp_path: Path) -> None:
    path = tmp_path / "intro.inc"  # reStructuredText includes such as part of a page
    with pytest.raises(Unsupported):
        load_file(content_of(path, b"A paragraph that several pages have.\n", tmp_path))


def test_asciidoc_has_its_headings_and_code_has_none(tmp_path: Path) -> None:
    text = "= Guide\n:toc:\n\n== Memory\n\n48 KB.\n\n----\n== no heading\n----\n\n=== Banks\n\n32.\n"
    _, document = loaded(tmp_path, "guide.adoc", text)
    assert document.title == "Guide"
    assert [s.heading_path for s in document.sections] == [
        "Guide",
        "Guide › Memory",
        "Guide › Memory › Banks",
    ]


def test_r_markdown_is_markdown(tmp_path: Path) -> None:
    loader, document = loaded(
        tmp_path, "bench.Rmd", "---\ntitle: Bench\n---\n\n# Results\n\n```{r}\n# no heading\n```\n\nFast.\n"
    )
    assert loader == "markdown"
    assert [s.heading_path for s in document.sections] == ["Results"]


def test_a_formula_is_read_once(tmp_path: Path) -> None:
    page = """<html><body><main><h1>Roofline</h1><p>Peak is
<span class="MathJax_Preview">fw</span>
<span class="MathJax" id="MathJax-Element-1-Frame"><nobr>fw</nobr></span>
<script type="math/tex">f w</script>, or
<span class="katex"><span class="katex-mathml"><math><semantics><mi>z</mi><annotation
encoding="application/x-tex">z^2</annotation></semantics></math></span>
<span class="katex-html">z2</span></span>.
</p></main></body></html>"""
    _, document = loaded(tmp_path, "roofline.html", page)
    assert " ".join((document.text or "").split()) == "# Roofline Peak is $f w$, or $z^2$ ."
