from __future__ import annotations

import random
from typing import Any

from ingest.chunking import CHUNK_CHARACTERS, chunk_document
from ingest.document import LoadedDocument, LoadedSection
from ingest.loaders.markdown import find_headings, sections_of
from kb.documents import NewChunk


def cut(text: str, embedder: Any, title: str = "Title") -> list[NewChunk]:
    lines = text.split("\n")
    document = LoadedDocument(title, sections_of(find_headings(lines, 0), 0, lines))
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
        for chunk in chunks:
            span = "\n".join(lines[chunk.start_line - 1 : chunk.end_line])
            assert chunk.text in span
            if chunk.start_line != chunk.end_line:
                assert chunk.text == span
            assert 0 < len(chunk.text) <= CHUNK_CHARACTERS
        assert "".join("".join(c.text.split()) for c in chunks) == "".join(text.split())


def test_passages_fit_the_model_and_cover_the_chunk(embedder: Any) -> None:
    for chunk in cut(messy_text(7), embedder):
        assert chunk.passages
        for passage in chunk.passages:
            assert passage.startswith(chunk.breadcrumb)
            assert embedder.count_tokens([passage])[0] <= embedder.passage_tokens
        body = "".join("".join(p.removeprefix(chunk.breadcrumb).split()) for p in chunk.passages)
        assert body == "".join(chunk.text.split())


def test_fence_stays_whole(embedder: Any) -> None:
    fence = "```c\n" + "\n\n".join(f"line {i};" for i in range(60)) + "\n```"
    chunks = cut(f"{words(150)}\n\n{fence}\n\n{words(150)}", embedder)
    assert any(fence in c.text for c in chunks)


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


def test_rendered_section_cites_its_lines(embedder: Any) -> None:
    document = LoadedDocument("T", [LoadedSection("k", 7, 9, text="rendered\n\ntext")])
    _, chunks = chunk_document(document, [""] * 20, embedder)
    assert [(c.text, c.start_line, c.end_line) for c in chunks] == [("rendered\n\ntext", 7, 9)]
