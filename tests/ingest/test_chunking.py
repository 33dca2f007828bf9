from __future__ import annotations

import random
from typing import Any

from ingest.blocks import CHUNK_CHARACTERS
from ingest.chunking import chunk_document
from ingest.document import LoadedDocument, LoadedSection
from ingest.loaders.markdown import find_headings, plain_line, sections_of
from kb.documents import NewChunk
from kb.upkeep.check import in_place

TABLE_HEADER = "| a | b |\n|---|---|\n"


def cut(text: str, embedder: Any, title: str = "Title") -> list[NewChunk]:
    lines = text.split("\n")
    document = LoadedDocument(title, sections_of(find_headings(lines, 0), 0, lines), plain=plain_line)
    return chunk_document(document, lines, embedder)[1]


def words(n: int, seed: int = 0) -> str:
    rng = random.Random(seed)
    return " ".join(f"w{rng.randrange(10_000)}" for _ in range(n))


def messy_text(seed: int) -> str:
    rng = random.Random(seed)
    blocks = []
    for i in range(40):
        kind = rng.randrange(5)
        if kind == 0:
            blocks.append(f"{'#' * rng.randint(1, 4)} Heading {i}")
        elif kind == 1:
            blocks.append("```\n" + "\n\n".join(words(rng.randint(1, 30), i) for _ in range(4)) + "\n```")
        elif kind == 2:
            blocks.append("| a | b |\n|---|---|\n" + "\n".join(f"| {words(3, j)} | x |" for j in range(30)))
        elif kind == 3:
            blocks.append(words(rng.randint(200, 900), i))
        else:
            blocks.append("\n".join(words(rng.randint(1, 20), j) for j in range(rng.randint(1, 8))))
    return ("\n" * rng.randint(1, 3) + "\n").join(blocks)


def test_spans_contain_the_text_and_nothing_is_lost(embedder: Any) -> None:
    for seed in range(5):
        text = messy_text(seed)
        lines = text.split("\n")
        chunks = cut(text, embedder)
        bodies = []
        for chunk in chunks:
            span = "\n".join(lines[chunk.start_line - 1 : chunk.end_line])
            repeated = chunk.text.startswith(TABLE_HEADER) and not span.startswith(TABLE_HEADER)
            body = chunk.text.removeprefix(TABLE_HEADER) if repeated else chunk.text
            assert body in span
            if chunk.start_line != chunk.end_line:
                assert body == span
            assert 0 < len(chunk.text) <= CHUNK_CHARACTERS
            bodies.append(body)
        assert "".join("".join(b.split()) for b in bodies) == "".join(text.split())


def test_passages_fit_the_model_and_cover_the_chunk(embedder: Any) -> None:
    for chunk in cut(messy_text(7), embedder):
        assert chunk.passages
        for passage in chunk.passages:
            assert passage.startswith(chunk.breadcrumb)
            assert embedder.count_tokens([passage])[0] <= embedder.passage_tokens
        bodies = [p.removeprefix(chunk.breadcrumb).lstrip("\n") for p in chunk.passages]
        rest = [b if b.startswith(TABLE_HEADER) else b.removeprefix("| a | b |\n") for b in bodies[1:]]
        assert "".join("".join([bodies[0], *rest]).split()) == "".join(chunk.text.split())


def test_fence_stays_whole(embedder: Any) -> None:
    fence = "```c\n" + "\n\n".join(f"line {i};" for i in range(60)) + "\n```"
    chunks = cut(f"{words(150)}\n\n{fence}\n\n{words(150)}", embedder)
    assert any(fence in c.text for c in chunks)


def test_long_table_repeats_its_header(embedder: Any) -> None:
    rows = [f"| row {i} | {words(8, i)} |" for i in range(60)]
    chunks = cut("Before.\n\n| a | b |\n|---|---|\n" + "\n".join(rows) + "\n\nAfter.", embedder)
    assert len(chunks) > 2
    for chunk in chunks[1:-1]:
        assert chunk.text.startswith(TABLE_HEADER)
    first = chunks[1].text.split("\n")[2]
    assert rows[chunks[1].start_line - 5] == first  # cites the rows, not the header
    tabular = [p for c in chunks for p in c.passages if "| row " in p]
    assert all("| a | b |" in p for p in tabular)


RAW_HEADER = "<table>\n<thead><tr><th>Name</th>\n<th>Value</th></tr></thead>"
RAW_ROWS = [f"<tr><td>row {i}</td>\n\n<td>{words(20, i)}</td></tr>" for i in range(40)]


def test_a_long_table_in_html_repeats_its_header_and_is_cut_between_rows(embedder: Any) -> None:
    text = f"Before:\n{RAW_HEADER}\n" + "\n".join(RAW_ROWS) + "\n</table>\nAfter."
    chunks = cut(text, embedder)
    assert len(chunks) > 3
    lines = text.split("\n")
    for chunk in chunks[1:]:
        assert chunk.text.startswith(f"{RAW_HEADER}\n<tr>")
        assert in_place(lines, chunk.text, chunk.start_line, chunk.end_line, rendered=False)
        assert len(chunk.text) <= CHUNK_CHARACTERS
    for row in RAW_ROWS:
        assert sum(row in chunk.text for chunk in chunks) == 1
    tabular = [p for c in chunks for p in c.passages if "row " in p]
    assert len(tabular) > len(chunks)
    assert all("Name" in p and "Value" in p for p in tabular)


def test_a_table_in_html_on_one_line_repeats_its_header(embedder: Any) -> None:
    table = "<table><tr><th>Name</th><th>Value</th></tr>" + "".join(RAW_ROWS).replace("\n", "") + "</table>"
    chunks = cut(f"Before.\n\n{table}\n\nAfter.", embedder)
    tabular = [c for c in chunks if "<td>" in c.text]
    assert len(tabular) > 3
    for chunk in tabular:
        assert chunk.text.startswith("<table><tr><th>Name</th><th>Value</th></tr>")
        assert in_place(["Before.", "", table], chunk.text, chunk.start_line, chunk.end_line, rendered=False)


def test_a_table_that_is_never_closed_swallows_nothing(embedder: Any) -> None:
    text = f"<table>\n<tr><th>A</th></tr>\n\n{words(400)}\n\n{words(400, 1)}"
    assert not any("<th>" in c.text for c in cut(text, embedder)[1:])


def test_table_without_frame_is_a_table(embedder: Any) -> None:
    text = "a | b\n--- | ---\n" + "\n".join(f"{words(20, i)} | x" for i in range(40))
    assert all(c.text.startswith("a | b\n") for c in cut(text, embedder))


def test_lead_in_goes_with_its_list(embedder: Any) -> None:
    items = "\n".join(f"- {words(12, i)}" for i in range(12))
    chunks = cut(f"{words(120)}.\n\nThe following holds:\n\n{items}", embedder)
    assert chunks[1].text.startswith("The following holds:\n\n- ")


def test_title_in_bold_goes_with_its_paragraph(embedder: Any) -> None:
    chunks = cut(f"{words(200)}.\n\n**Layout.**\n\n{words(80)}.", embedder)
    assert chunks[1].text.startswith("**Layout.**\n\nw")


def test_heading_is_not_left_alone(embedder: Any) -> None:
    chunks = cut(f"## Heading\n\n{words(235)}", embedder)
    assert chunks[0].text.startswith("## Heading\n\nw")
    assert len(chunks[0].text) > 800


def test_long_code_is_cut_between_functions(embedder: Any) -> None:
    function = "\n".join(["def f{0}(x):", *(f"    y = {words(4, i)}" for i in range(12)), "    return y"])
    code = "\n\n".join(function.format(i) for i in range(12))
    chunks = cut(f"```python\n{code}\n```", embedder)
    assert len(chunks) > 2
    assert all(c.text.startswith(("```python\ndef ", "def ")) for c in chunks)
    assert all(c.text.rstrip().endswith(("return y", "```")) for c in chunks)


def test_breadcrumb_names_title_and_headings_once(embedder: Any) -> None:
    chunks = cut("# Guide\n\na\n\n## Part\n\nb\n", embedder, title="Guide")
    assert [c.breadcrumb for c in chunks] == ["Guide", "Guide › Part"]


def test_one_endless_line(embedder: Any) -> None:
    chunks = cut("x" * 20_000, embedder)
    assert sum(len(c.text) for c in chunks) == 20_000
    assert {(c.start_line, c.end_line) for c in chunks} == {(1, 1)}


def test_overlong_heading(embedder: Any) -> None:
    chunk = cut(f"# {words(300)}\n\ntext\n", embedder)[0]
    assert len(chunk.breadcrumb) <= 200
    assert all(embedder.count_tokens([p])[0] <= embedder.passage_tokens for p in chunk.passages)


def test_rendered_lines_cite_their_own_lines(embedder: Any) -> None:
    text = "a\n\n" + "\n\n".join([words(150), words(150, 1)])
    origins = ((3, 3), (3, 3), (5, 9), (9, 9), (20, 22))
    document = LoadedDocument("T", [LoadedSection("k", 3, 22, text=text, origins=origins)])
    _, chunks = chunk_document(document, [""] * 30, embedder)
    assert [(c.start_line, c.end_line) for c in chunks] == [(3, 9), (20, 22)]


def test_passages_hold_words_where_the_loader_says_how(embedder: Any) -> None:
    document = LoadedDocument("T", [LoadedSection("k", 1, 1)], plain=lambda line: line.replace("*", ""))
    chunk = chunk_document(document, ["*x*"], embedder)[1][0]
    assert chunk.text == "*x*"
    assert chunk.passages == ("T › k\nx",)


def test_sections_without_text_are_left_out(embedder: Any) -> None:
    document = LoadedDocument(
        "T", [LoadedSection("a", 1, 1), LoadedSection("b", 2, 3), LoadedSection("c", 4, 4)]
    )
    sections, chunks = chunk_document(document, ["x", "", " ", "y"], embedder)
    assert [s.heading_path for s in sections] == ["a", "c"]
    assert [(c.section, c.text) for c in chunks] == [(0, "x"), (1, "y")]


def test_rendered_section_cites_its_lines(embedder: Any) -> None:
    document = LoadedDocument("T", [LoadedSection("k", 7, 9, text="rendered\n\ntext")])
    _, chunks = chunk_document(document, [""] * 20, embedder)
    assert [(c.text, c.start_line, c.end_line) for c in chunks] == [("rendered\n\ntext", 7, 9)]
