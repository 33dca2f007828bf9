"""reStructuredText: prose, headings, tables, directives."""

from __future__ import annotations

import time
from textwrap import dedent

import pytest
from rst_support import load, section, text_of

from ingest.loaders.rst.inline import plain

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
