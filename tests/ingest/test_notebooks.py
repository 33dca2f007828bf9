from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ingest import ingest_paths
from ingest.document import LoadedDocument
from ingest.errors import Unreadable
from ingest.registry import content_of, loader_for
from ingest.twins import find_twins
from kb import KnowledgeBase


def cell(kind: str, source: str, **more: Any) -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True), **more}


def notebook(cells: Sequence[dict[str, Any]], **metadata: Any) -> str:
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": list(cells)})


def load(text: str) -> LoadedDocument:
    file = content_of(Path("n.ipynb"), text.encode())
    return loader_for(file).load(file)


IMAGE = "data:image/png;base64," + "iVBORw0KGgo" * 400
CELLS = [
    cell("markdown", "# Tiles\n\nA ![plot](" + IMAGE + ") of it.\n"),
    cell(
        "code",
        "# not a heading\nfor i in range(2):\n    tile(i)\n",
        outputs=[{"output_type": "stream", "text": ["printed words\n"]}, {"data": {"image/png": IMAGE}}],
    ),
    cell("markdown", "## Sizes\n\n```\nnever closed"),
    cell("markdown", "## After\n\n![x](attachment:image.png)\nMore."),
    cell("code", "%%writefile kernel.cu\n__global__ void k() {}"),
    cell("code", "   "),
]


def test_text_and_code_in_order_without_outputs_and_images() -> None:
    document = load(notebook(CELLS, language_info={"name": "python"}))
    assert document.text is not None
    lines = document.text.split("\n")
    assert document.title == "Tiles"
    assert [s.heading_path for s in document.sections] == ["Tiles", "Tiles › Sizes", "Tiles › After"]
    after = document.sections[-1]
    assert lines[after.start_line - 1] == "## After"
    assert after.end_line == len(lines)
    assert "\n```python\n# not a heading\nfor i in range(2):\n    tile(i)\n```\n" in document.text
    assert "```cuda\n%%writefile kernel.cu\n" in document.text
    for gone in ("printed words", "base64", "iVBOR", "attachment:"):
        assert gone not in document.text


def test_the_language_is_the_notebooks() -> None:
    assert load(notebook([cell("code", "x <- 1")], kernelspec={"language": "R"})).meta == {"language": "r"}


def test_format_3() -> None:
    old = {
        "nbformat": 3,
        "worksheets": [
            {
                "cells": [
                    {"cell_type": "heading", "level": 2, "source": "Old  heading"},
                    {"cell_type": "code", "language": "python", "input": "x = 1\n", "outputs": []},
                    {"cell_type": "markdown", "source": "Words."},
                ]
            }
        ],
    }
    assert load(json.dumps(old)).text == "## Old heading\n\n```python\nx = 1\n```\n\nWords."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (notebook(CELLS)[:300], "not a notebook: line 1"),
        ("[1, 2]", "without cells"),
        ('{"nbformat": 4}', "without cells"),
        ('{"cells": ["words"]}', "cell 1 is no object"),
        ('{"cells": [{"cell_type": "code", "source": 3}]}', "cell 1"),
        (notebook([cell("code", "")]), "no text"),
    ],
)
def test_what_is_no_notebook_is_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(Unreadable, match=message) as caught:
        load(text)
    assert "\n" not in str(caught.value)


def test_escaped_surrogates_and_nul_reach_no_database(kb: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "n.ipynb").write_text('{"cells": [{"cell_type": "markdown", "source": "a\\ud800b\\u0000c"}]}')
    assert ingest_paths(kb, [tmp_path / "n.ipynb"]).failed == []


SCRIPT = """# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
# ---

# # Tiles
#
# Choose the tile so that it fits.

# %%
for i in range(2):
    tile(i)
"""
MARKDOWN = """---
jupytext:
  formats: ipynb,md:myst
---

# Tiles

Choose the tile so that it fits.

```{code-cell}
for i in range(2):
    tile(i)
```
"""


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    root = tmp_path / "pair"
    root.mkdir()
    cells = [
        cell("markdown", "# Tiles\n\nChoose the tile so that it fits."),
        cell("code", "for i in range(2):\n    tile(i)"),
    ]
    (root / "a.ipynb").write_text(notebook(cells))
    return root


@pytest.mark.parametrize(("name", "text"), [("a.py", SCRIPT), ("a.md", MARKDOWN)])
def test_a_twin_is_recorded_and_not_indexed(kb: KnowledgeBase, pair: Path, name: str, text: str) -> None:
    (pair / name).write_text(text)
    report = ingest_paths(kb, [pair])
    assert (report.added, report.failed) == (1, [])
    assert {"path": name, "notes": ["the same as a.ipynb, which is indexed"]} in report.notes
    again = ingest_paths(kb, [pair])
    assert (again.unchanged, again.added, again.removed) == (1, 0, 0)
    (pair / name).write_text("# Other\n\nWords of its own, and many more of them.\n" * 3)
    assert ingest_paths(kb, [pair]).added == 1


def test_a_file_of_the_same_name_with_other_content_is_no_twin(pair: Path) -> None:
    (pair / "a.py").write_text("# ---\n# jupyter:\n# ---\n" + "".join(f"other({i})\n" for i in range(9)))
    (pair / "a.md").write_text("# Tiles\n\nSomething else.\n")
    assert find_twins(list(pair.iterdir())) == {}


def test_the_twin_of_a_broken_notebook_is_indexed(kb: KnowledgeBase, pair: Path) -> None:
    (pair / "a.ipynb").write_text("{")
    (pair / "a.md").write_text(MARKDOWN)
    report = ingest_paths(kb, [pair])
    assert report.added == 1
    assert len(report.failed) == 1


def test_real_notebooks(shared: Path) -> None:
    files = sorted((shared / "documents").glob("*.ipynb"))
    assert files
    for path in files:
        file = content_of(path, path.read_bytes())
        document = loader_for(file).load(file)
        assert document.text is not None
        assert "base64" not in document.text
        sources = [
            "".join(c["source"]) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"
        ]
        assert sources or document.sections
        for source in sources:
            assert source.strip() in document.text
