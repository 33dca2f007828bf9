"""Ideas in words: what an answer holds, and which of them differ."""

from __future__ import annotations

import pytest

from agent.ideas import parse_ideas, pick_diverse
from agent.parsing import Unparseable

TILE = "tile the product for the cache, because operands are read again from memory"
TILE_AGAIN = "because operands are read again from memory, tile the products for the cache"
FUSE = "fuse bias and activation into one pass"
THREADS = "use a static schedule with one block of rows for each thread"


def test_ideas_are_read_in_the_forms_that_models_write():
    text = (
        "<think>IDEA: not this</think>Here they are.\n"
        f"IDEA: {TILE}\n- **Idea 2:** {FUSE}\n3. IDEA: {THREADS}\nIDEA: {FUSE}\nAn idea is good.\n"
    )
    assert parse_ideas(text, 9) == (TILE, FUSE, THREADS)
    assert parse_ideas(text, 2) == (TILE, FUSE)


@pytest.mark.parametrize("text", ["", "no", "IDEA:", "<think>IDEA: x</think>"])
def test_an_answer_without_ideas_is_unparseable(text):
    with pytest.raises(Unparseable, match="IDEA"):
        parse_ideas(text, 3)


def test_the_favourite_comes_first_then_what_differs_most():
    assert pick_diverse([TILE, TILE_AGAIN, FUSE, THREADS], 3) == [TILE, FUSE, THREADS]
    assert pick_diverse([TILE, TILE_AGAIN], 2) == [TILE]


def test_what_was_had_before_is_not_had_again():
    assert pick_diverse([TILE_AGAIN, FUSE], 2, known=[TILE]) == [FUSE]
    assert pick_diverse([TILE], 2, known=[TILE]) == []
