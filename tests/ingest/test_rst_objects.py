"""API objects of Sphinx's domains."""

from __future__ import annotations

from rst_support import load, section, text_of

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
