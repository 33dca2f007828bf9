"""A list of hits says everything once, and nothing is lost by that."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kb import Hit, KnowledgeBase
from kb.folding import fold

TEXT = (
    "Each multiprocessor has 228 KiB of shared memory, of which one block may have 227 KiB. "
    "Larger blocks are refused at launch, and the error names the kernel that asked for more than there is."
)


def hit(text: str, path: str = "a.md", **other: object) -> Hit:
    values = {"rank": 1, "score": 1.0, "kind": "document", "source": "s", "path": path, "section": "",
              "page": None, "start_line": 1, "end_line": 1, "text": text, "citation": f"{path}:1-1",
              "chunk_id": path}  # fmt: skip
    return Hit(**{**values, **other})  # type: ignore[arg-type]


def paths(*hits: Hit, k: int = 10) -> list[str]:
    return [h.path for h in fold(hits, k)]


@pytest.mark.parametrize(
    "second",
    [
        TEXT,
        TEXT.replace(" ", "\n"),
        TEXT.upper(),
        TEXT.replace(", and the error", " and then the error"),
        TEXT.split(". ", maxsplit=1)[0] + ".",
        "Version 2.4\n\n" + TEXT,
        "Release 12.1.0: " + TEXT,
    ],
)
def test_what_says_the_same_is_named_where_the_first_stands(second: str) -> None:
    first, other = fold([hit("Version 2.3\n\n" + TEXT), hit(second, "b.md"), hit("Else.", "c.md")], 10)
    assert (first.path, other.path) == ("a.md", "c.md")
    assert (first.rank, other.rank) == (1, 2)
    assert first.why["also_at"] == ["b.md:1-1"]
    assert "also_at" not in other.why


@pytest.mark.parametrize(
    "second",
    [
        TEXT.replace("227", "163"),
        TEXT.replace("multiprocessor", "cluster"),
        TEXT + " Ask for it with `setMaxDynamic`.",
        "block shared. more names 227 refused KiB error blocks the memory at",  # the words, in another order
    ],
)
def test_what_has_something_of_its_own_stays(second: str) -> None:
    assert paths(hit(TEXT), hit(second, "b.md")) == ["a.md", "b.md"]


def test_functions_that_read_alike_stay_apart() -> None:
    text = "nl.{0}(x, y): element-wise {0} of two tiles of one shape, in the type of x unless dtype says."
    assert paths(hit(text.format("maximum")), hit(text.format("minimum"), "b.md")) == ["a.md", "b.md"]


def test_things_and_what_may_be_withheld_are_not_folded() -> None:
    assert paths(hit(TEXT, kind="skill"), hit(TEXT, "b", kind="skill")) == ["a.md", "b"]
    assert paths(hit(TEXT, kind="kernel"), hit(TEXT, "b", kind="kernel")) == ["a.md", "b"]
    assert paths(hit(TEXT, local_only=True), hit(TEXT, "b")) == ["a.md", "b"]
    assert paths(hit(TEXT), hit(TEXT, "b", local_only=True)) == ["a.md", "b"]
    assert paths(hit(TEXT, kind="document"), hit(TEXT, "b", kind="hardware")) == ["a.md", "b"]


def test_another_source_is_named() -> None:
    assert fold([hit(TEXT), hit(TEXT, source="other")], 5)[0].why["also_at"] == ["other: a.md:1-1"]


def test_no_more_is_consumed_than_needed() -> None:
    def endless() -> Iterator[Hit]:
        for number in range(7):
            yield hit(f"line {number}", f"{number}")
        raise AssertionError("consumed too much")

    assert len(fold(endless(), 7)) == 7
    assert fold(iter(()), 7) == []
    assert fold(endless(), 0) == []
    assert paths(hit(""), hit("", "b.md"), hit("...", "c.md")) == ["a.md", "b.md", "c.md"]


def test_copies_do_not_crowd_out_the_rest(kb: KnowledgeBase, store: Callable[..., None]) -> None:
    for number in range(15):
        store(kb, f"copy{number:02}.md", TEXT)
    store(kb, "other.md", "Shared memory of a block is configured before the launch.")
    result = kb.query("shared memory of a block", k=5)
    assert sorted(h.path for h in result.hits)[1] == "other.md"
    first = next(h for h in result.hits if h.path.startswith("copy"))
    assert len(first.why["also_at"]) == 14
    with kb.session() as session:
        count = session.connection().exec_driver_sql("SELECT count(*) FROM document").scalar_one()
    assert count == 16, "the store keeps every document"
