# ruff: noqa: E501 - texts are easier to read unbroken
"""A loader that reads the same file differently must have another version: files are then read again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ingest import chunking, reading
from ingest.registry import content_of, load_file

NOTEBOOK = {
    "nbformat": 4,
    "metadata": {"language_info": {"name": "python"}},
    "cells": [
        {"cell_type": "markdown", "source": ["# Tiles\n", "Words."]},
        {"cell_type": "code", "source": "x = 1", "outputs": [{"text": "1"}]},
    ],
}
PAGE = """<html><head><title>T — Site</title></head><body><nav>menu</nav><main><h1>Tiles</h1><p>Use <code>f</code>.</p>
<table><tr><th>a</th><th>b</th></tr><tr><td rowspan=2>1</td><td>2</td></tr><tr><td>3</td></tr></table>
<dl class="py function"><dt class="sig" id="m.f">m.f(x)</dt><dd><p>Returns x.</p></dd></dl></main></body></html>"""
RST = """
Tiles
=====

.. |n| replace:: seven

Use |n| of :func:`f`.

.. list-table::
   :header-rows: 1

   * - a
     - b
   * - 1
     - 2

.. py:function:: f(x)

   Returns x.
"""
C = "namespace n {\n/// Adds.\n/// More.\ntemplate <class T>\n__global__ void add(T *a, int n) { }\n}\n"
PYTHON = '"""Module."""\n\nclass A:\n    """Doc."""\n\n    def f(self, x: int) -> int:\n        """Return x."""\n        return x\n'
TABLEGEN = (
    'def AddOp : Op<"add", [Pure]> {\n  let summary = "adds";\n  let description = [{ Adds two. }];\n}\n'
)
MARKDOWN = "---\nscope: amd\n---\n# Tiles\n\nWords [here](http://x.org/a).\n\nUnder\n-----\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
TIMINGS = '[{"kernel": "k.py", "time_ms": 1.5, "target": "cpu", "shape": "8x8"}]'
# Texts by the name of a file, with the loader that takes it, its version, and the digest of what it makes of the text.
GOLDEN: dict[str, tuple[str, str, int, str]] = {
    "a.md": (MARKDOWN, "markdown", 2, "98b785ae80a6"),
    "a.rst": (RST, "rst", 3, "dc840368c633"),
    "a.txt": ("Tiles\n=====\n\nWords.\n", "text", 3, "999f0d9f88e4"),
    "a.py": (PYTHON, "python", 3, "bb652b1061b4"),
    "a.cu": (C, "c", 4, "1f8d1167db45"),
    "a.td": (TABLEGEN, "tablegen", 1, "8499a04259ae"),
    "a.html": (PAGE, "html", 2, "380acb3f4780"),
    "a.ipynb": (json.dumps(NOTEBOOK), "notebook", 1, "baf6dc4f4904"),
    "timings.json": (TIMINGS, "timings", 1, "cc5421e94bbe"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_loader_that_reads_otherwise_has_another_version(name: str) -> None:
    text, loader_name, version, digest = GOLDEN[name]
    loader, made = _loaded(name, text)
    found = (loader.name, loader.version, made)
    if loader.name == loader_name and loader.version == version and made != digest:
        pytest.fail(
            f"the {loader.name} loader reads {name} differently: raise its version, then record {found}"
        )
    assert found == (loader_name, version, digest), "record the new version and digest here"


def test_cutting_and_decoding_have_versions_too(embedder: Any) -> None:
    """The same for what every file goes through."""
    assert (reading.VERSION, _digest([reading.decode(data, Path("a.txt")) for data in BYTES])) == READING, (
        "raise reading.VERSION when it decodes differently, then record the new one"
    )
    _, document = load_file(content_of(Path("a.md"), (MARKDOWN + LONG).encode()))
    chunks = chunking.chunk_document(document, (MARKDOWN + LONG).split("\n"), embedder)[1]
    made = _digest([(c.text, c.start_line, c.end_line, c.breadcrumb, c.passages) for c in chunks])
    assert (chunking.VERSION, made) == CHUNKING, (
        "raise chunking.VERSION when it cuts differently, then record the new one"
    )


def _loaded(name: str, text: str) -> tuple[Any, str]:
    loader, document = load_file(content_of(Path(name), text.encode()))
    sections = [
        (s.heading_path, s.start_line, s.end_line, s.page, s.text, s.origins) for s in document.sections
    ]
    plain = [document.plain(line) for line in text.split("\n")] if document.plain else None
    made = (document.title, sections, document.kind, document.scope, document.meta, document.text, plain)
    return loader, _digest(made)


def _digest(made: Any) -> str:
    return hashlib.sha256(json.dumps(made, sort_keys=True, default=str).encode()).hexdigest()[:12]


BYTES = [
    "größe".encode(),
    "größe".encode("cp1252"),
    "线程块的大小".encode("gbk"),
    b"a\x00b\r\nc",
    "wide".encode("utf-16"),
]
LONG = "\n".join(f"| row {i} | {'word ' * 12} |" for i in range(40)) + "\n\n" + "Sentence of words. " * 200
READING = (3, "ff15299928dd")
CHUNKING = (4, "a71c2f4c174c")
