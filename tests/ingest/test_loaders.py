from __future__ import annotations

from pathlib import Path

import pytest

from ingest.document import FileContent, LoadedDocument
from ingest.errors import Unreadable, Unsupported
from ingest.registry import loader_for, loaders


def load(name: str, text: str) -> LoadedDocument:
    file = FileContent(Path(name), text.encode(), text)
    return loader_for(file).load(file)


def headings(document: LoadedDocument) -> list[tuple[str, int, int]]:
    return [(s.heading_path, s.start_line, s.end_line) for s in document.sections]


def test_markdown_front_matter_headings_and_fences() -> None:
    document = load(
        "a.md",
        "---\ntitle: A guide\nkind: guidance\nscope: CPU\nchecked: 2026-01-02\nadvice:\n"
        "  - {when: memory, move: fewer-passes, because: x}\n---\nintro\n\n# One\n\n"
        "```python\n# not a heading\n```\n\nTwo\n---\n\n### [Three](x) `code`\ntext\n",
    )
    assert (document.title, document.kind, document.scope) == ("A guide", "guidance", "cpu")
    assert document.meta["checked"] == "2026-01-02"
    assert document.meta["advice"][0]["move"] == "fewer-passes"
    assert headings(document) == [
        ("", 9, 10),
        ("One", 11, 16),
        ("One › Two › Three code", 17, 22),
    ]


def test_headings_without_text_lead_what_is_under_them() -> None:
    document = load("a.md", "# One\n\n## Two\n\nThree\n-----\n### Four\ntext\n# Five\n# Six\n")
    assert headings(document) == [
        ("One › Two", 1, 4),
        ("One › Three › Four", 5, 8),
        ("Five", 9, 9),
        ("Six", 10, 11),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('see [the [x] guide](../a/b.md#c "T") and ![alt](data:image/png)', "see the [x] guide and alt"),
        ("<td>2<sup>23</sup></td><br/>", "  2  23    "),
        ("a[i](x) + [&](int y) { }", "a[i](x) + [&](int y) { }"),
        ("template <typename T> std::vector<int>", "template <typename T> std::vector<int>"),
    ],
)
def test_the_embedding_model_sees_no_addresses(line: str, words: str) -> None:
    document = load("a.md", "# One\n")
    assert document.plain is not None
    assert document.plain(line).split() == words.split()


@pytest.mark.parametrize(
    ("front", "message"),
    [
        ("title: [unclosed", "not valid YAML"),
        ("- a\n- b", "mapping"),
        ("kind: poem", "unknown kind 'poem'"),
        ("a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"
         "d: [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]", "more than"),
    ],
)  # fmt: skip
def test_bad_front_matter_is_one_line(front: str, message: str) -> None:
    with pytest.raises(Unreadable, match=message) as caught:
        load("a.md", f"---\n{front}\n---\ntext\n")
    assert "\n" not in str(caught.value)


def test_markdown_that_only_begins_with_a_rule() -> None:
    assert load("a.md", "---\n\ntext\n").meta == {}


def test_text_headings() -> None:
    document = load("a.txt", "=====\nTitle\n=====\n\ntext\n\nPart\n----\n\nmore\n")
    assert [h for h, _, _ in headings(document)] == ["Title", "Title › Part"]
    assert document.title == "Title"


def test_python_that_does_not_parse_is_still_read() -> None:
    document = load("old.py", "print 'hello'\n")
    assert headings(document) == [("old", 1, 2)]
    assert "not valid Python" in document.notes[0]


def test_plain_python_is_a_document() -> None:
    assert load("a.py", "def f():\n    return 1\n").kind == "document"


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.xyz"])
def test_unknown_formats_are_unsupported(name: str) -> None:
    with pytest.raises(Unsupported, match=f"no loader for {Path(name).suffix}"):
        load(name, '{"a": 1}')


def test_all_built_in_loaders_are_registered() -> None:
    names = [loader.name for loader in loaders()]
    assert names.index("skill") < names.index("markdown")
    assert set(names) >= {
        "c",
        "markdown",
        "nsight-compute",
        "python",
        "rst",
        "skill",
        "text",
        "unsupported-trace",
    }


@pytest.mark.parametrize("error", [MemoryError(), RecursionError("maximum recursion depth exceeded")])
def test_python_nested_beyond_the_parser_is_still_read(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(_: str) -> None:
        raise error

    monkeypatch.setattr("ast.parse", fail)
    document = load("deep.py", "x = 1\n")
    assert [s.heading_path for s in document.sections] == ["deep"]
    assert "not valid Python" in document.notes[0]


def test_values_that_json_cannot_hold_are_named() -> None:
    from ingest.loaders.markdown import front_matter

    meta = front_matter(["---", "at: 2026-01-02 03:04:05", 'name: "a\\ud800b"', "---"])[0]
    assert meta == {"at": "2026-01-02T03:04:05", "name": "a?b"}
    for value in ("!!binary aGVsbG8=", ".nan"):
        with pytest.raises(Unreadable, match="front matter: a value cannot be stored"):
            front_matter(["---", f"x: [{value}]", "---"])
