from __future__ import annotations

import pytest

from kb.wording import counted


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 passages"), (1, "1 passage"), (2, "2 passages"), (1000, "1000 passages")]
)
def test_numbers_agree_with_their_nouns(number: int, said: str) -> None:
    assert counted(number, "passage") == said


def test_irregular_nouns() -> None:
    assert (counted(1, "index", "indexes"), counted(2, "index", "indexes")) == ("1 index", "2 indexes")
