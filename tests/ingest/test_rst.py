from __future__ import annotations

import time
from pathlib import Path
from textwrap import dedent

import pytest

from ingest import ingest_paths
from ingest.document import FileContent, LoadedDocument
from ingest.loaders.rst import RstLoader
from ingest.loaders.rst.inline import plain
from ingest.registry import loader_for
from kb import KnowledgeBase
from kb.upkeep.check import check

GUIDE = """\
.. meta::
   :description: How tiles are laid out.

.. |dev| replace:: the device
.. _tiles:

======
Tiles
======

A tile lives on |dev|; ``|dev|`` stays. See :ref:`sizes <tile-sizes>` and :func:`~pkg.mod.load`.

.. note::

   Tiles are padded.

.. warning:: Never free
   a tile twice.

   .. code-block:: python
      :linenos:

      free(t)

      free(t)

Sizes
-----

.. list-table:: Limits
   :header-rows: 1

   * - Type
     - Bytes
       each
   * - ``f16``
     - 2
   * - ``a|b``
     - - one
       - two

Deeper
~~~~~~

Text::

   raw |dev|

Other
-----

+------+--------+
| Op   | Cycles |
+======+========+
| add  | 4, or  |
|      | 8      |
+------+--------+

====  =====
Key   Value
====  =====
one   first
      line
two   second
====  =====

.. figure:: x.png
   :alt: a grid of tiles

   The caption.

.. toctree::

   other
"""


def load(text: str, name: str = "a.rst", root: Path | None = None) -> LoadedDocument:
    file = FileContent(Path(name), text.encode(), text, (), root)
    return RstLoader().load(file)


def text_of(document: LoadedDocument) -> str:
    return "\n\n".join(s.text or "" for s in document.sections)


def section(document: LoadedDocument, heading: str) -> str:
    return next(s.text or "" for s in document.sections if s.heading_path == heading)


def test_headings_by_order_of_appearance_with_their_labels() -> None:
    document = load(GUIDE)
    assert document.title == "Tiles"
    headings = [s.heading_path for s in document.sections]
    assert headings == ["Tiles", "Tiles › Sizes", "Tiles › Sizes › Deeper", "Tiles › Other"]
    assert ".. _tiles:" in section(document, "Tiles")
    assert "How tiles are laid out." in section(document, "Tiles")


def test_every_rendered_line_cites_the_lines_it_was_made_from() -> None:
    document = load(GUIDE)
    source = GUIDE.split("\n")
    sizes = next(s for s in document.sections if s.heading_path == "Tiles › Sizes")
    assert sizes.origins is not None
    assert sizes.text is not None
    cited = dict(zip(sizes.text.split("\n"), sizes.origins, strict=True))
    first, last = cited["| ``f16`` | 2 |"]
    assert source[first - 1 : last] == ["   * - ``f16``", "     - 2"]
    assert (sizes.start_line, sizes.end_line) == (source.index("Sizes") + 1, source.index("       - two") + 1)


def test_prose_keeps_its_roles_and_code_its_bars() -> None:
    text = section(load(GUIDE), "Tiles")
    assert "A tile lives on the device; ``|dev|`` stays. See :ref:`sizes <tile-sizes>`" in text
    assert "raw |dev|" in section(load(GUIDE), "Tiles › Sizes › Deeper")


@pytest.mark.parametrize(
    ("marked", "words"),
    [
        (":func:`~a.b.c` or :py:meth:`!x.y`", "a.b.c or x.y"),
        ("see :ref:`the guide <guide>`, :doc:`/a/b`", "see the guide, /a/b"),
        ("``x[0]`` and `link <http://a.b/c>`_", "x[0] and link"),
        (".. _my-label:", "my-label"),
        ("**bold** ``__init__`` :math:`x^2`", "bold __init__ x^2"),
        ("a:b and 1:2:`x", "a:b and 1:2:`x"),
    ],
)
def test_the_embedding_model_sees_words(marked: str, words: str) -> None:
    assert plain(marked) == words


def test_admonitions_name_their_kind_and_code_is_fenced() -> None:
    text = section(load(GUIDE), "Tiles")
    assert "**Note**\nTiles are padded." in text
    assert "**Warning**\nNever free\na tile twice." in text
    assert "```python\nfree(t)\n\nfree(t)\n```" in text


def test_tables_of_all_kinds_become_markdown() -> None:
    document = load(GUIDE)
    assert "| Type | Bytes each |\n| --- | --- |\n| ``f16`` | 2 |\n| ``a\\|b`` | - one - two |" in section(
        document, "Tiles › Sizes"
    )
    other = section(document, "Tiles › Other")
    assert "| Op | Cycles |\n| --- | --- |\n| add | 4, or 8 |" in other
    assert "| Key | Value |\n| --- | --- |\n| one | first line |\n| two | second |" in other


def test_csv_tables_with_quotes_delimiters_and_headers() -> None:
    text = text_of(
        load(
            dedent("""\
            .. csv-table:: Modes
               :header: "Name", "What"
               :delim: ;

               x; "says ""a; b"", over
               two lines"
            """).replace('"Name", "What"', '"Name"; "What"')
        )
    )
    assert '| Name | What |\n| --- | --- |\n| x | says "a; b", over two lines |' in text


def test_tables_whose_cells_hold_code_keep_it() -> None:
    text = text_of(
        load(
            dedent("""\
            .. list-table::
               :header-rows: 1

               * - Bad
                 - Good
               * - .. code-block:: c

                      a();
                      b();
                 - Nothing
            """)
        )
    )
    assert "Bad:\n```c\na();\nb();\n```" in text
    assert "Good:\nNothing" in text


def test_figures_keep_their_words_and_navigation_goes() -> None:
    text = section(load(GUIDE), "Tiles › Other")
    assert "Figure: a grid of tiles" in text
    assert "The caption." in text
    assert "toctree" not in text
    assert "other" not in text


def test_directives_that_are_list_items() -> None:
    text = text_of(load("- .. note:: Mind\n     this.\n\n- .. code-block:: c\n\n     f();\n\n- plain\n"))
    assert "**Note**\n  Mind\n  this." in text
    assert "  ```c\n  f();\n  ```" in text
    assert "- plain" in text


def test_raw_tables_are_kept_and_other_markup_is_not() -> None:
    row = "<tr><th>Type</th><th>Bits</th></tr><tr><td>f8</td><td>8</td></tr>"
    document = load(f".. raw:: html\n\n   <table>{row}</table>\n")
    assert text_of(document) == "| Type | Bits |\n| --- | --- |\n| f8 | 8 |"
    assert (document.sections[0].start_line, document.sections[0].end_line) == (1, 3)
    other = load("Text.\n\n.. raw:: html\n\n   <div>Menu</div>\n\n.. raw:: latex\n\n   x\n")
    assert text_of(other) == "Text."


API = """\
Language
========

.. currentmodule:: pkg.lang

.. py:function:: load(ptr, mask=None) -> tensor
                 load(ptr)

   Reads a tile.

   :param ptr: where

.. class:: Tile(shape)

   A tile.

   .. attribute:: rows
      :type: int

      How many.

   .. method:: copy()

      A copy.

.. cpp:function:: template <typename T> void ns::fill(T* p, int n)

   Fills.

After.

.. py:function:: store(ptr)

Described beside it.

.. autofunction:: zeros
.. autosummary::
   :toctree: generated

   ~cat
   pkg.lang.full
"""


def test_api_objects_become_sections_with_qualified_names() -> None:
    document = load(API)
    assert [s.heading_path for s in document.sections] == [
        "Language › pkg.lang.load",
        "Language › pkg.lang.Tile",
        "Language › pkg.lang.Tile › pkg.lang.Tile.copy",
        "Language › ns::fill",
        "Language",
    ]
    load_section = document.sections[0].text or ""
    assert "load(ptr, mask=None) -> tensor\nload(ptr)\n\nReads a tile." in load_section
    assert ":param ptr: where" in load_section
    tile = section(document, "Language › pkg.lang.Tile")
    assert tile.startswith("class Tile(shape)\n")
    assert "rows\n\n  :type: int\n\n  How many." in tile


def test_objects_without_text_of_their_own_stay_where_they_are() -> None:
    rest = load(API).sections[-1].text or ""
    assert "store(ptr)\n\nDescribed beside it." in rest
    assert "``pkg.lang.zeros`` (function; documented in its source)" in rest
    assert "- ``pkg.lang.cat``\n- ``pkg.lang.full``" in rest


def test_modules_and_titled_containers() -> None:
    blocks = [
        ".. py:module:: pkg.ops\n   :synopsis: All operators.",
        ".. tab-set::\n\n   .. tab-item:: Linux\n      :sync: a\n\n      Type it.",
        ".. grid:: 1 2\n\n   .. grid-item-card:: Start\n      :link: x\n\n      Go.",
        ".. only:: html\n\n   Kept.",
        ".. data:: LIMIT\n   :value: 3",
    ]
    assert text_of(load("\n\n".join(blocks))) == "\n\n".join(
        [
            "Module ``pkg.ops``: All operators.",
            "**Linux**\nType it.",
            "**Start**\nGo.",
            "Kept.",
            "LIMIT\n\n  :value: 3",
        ]
    )


def test_unknown_directives_keep_their_text_and_are_named() -> None:
    document = load("T\n==\n\n.. fancy:: Title\n   :opt: x\n\n   Inside.\n\n.. fancy::\n")
    assert "**Title**\nInside." in text_of(document) or "**Title**\n\nInside." in text_of(document)
    assert document.notes == ["directives not understood, their text kept: fancy (2)"]


@pytest.mark.parametrize(
    "text",
    [
        ".. list-table::\n\n   no list",
        '.. csv-table::\n\n   "open, b\n',
        "+--+\n|a\n",
        "=== ===\na",
        "..",
        ".. ",
        ".. |x| replace::",
        "T\n=",
        "====",
        "::",
        "a::",
        ".. code-block::",
        ".. figure::",
        ".. include::",
        ".. py:function::",
        ".. c:function:: (",
        ".. cpp:class:: template<",
        ".. table:: x\n\n   +-+\n",
        "\t.. note::\n\t\ttab",
        ".. math::",
        "`unclosed :ref:`x <",
        ".. [1",
    ],
)
def test_malformed_text_is_still_read(text: str) -> None:
    body = f"Title\n=====\n\nbefore\n\n{text}\n\nafter\n"
    rendered = text_of(load(body))
    assert "before" in rendered
    assert "after" in rendered


def test_nesting_without_end_is_kept_as_it_is() -> None:
    text = "".join(f"{'   ' * i}.. note::\n\n" for i in range(300)) + "   " * 300 + "core\n"
    document = load(text)
    assert "core" in text_of(document)
    assert any("nested too deeply" in note for note in document.notes)


def test_a_megabyte_takes_a_moment() -> None:
    for piece in (
        "word *a* :ref:`x`\n",
        "* - a\n  - b\n",
        "=== ===\n",
        "+--+--+\n",
        "x::\n\n  y\n",
        ".. _l:\n",
    ):
        started = time.process_time()
        load(piece * (300_000 // len(piece)))
        assert time.process_time() - started < 3, piece


# --- other files ---


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
