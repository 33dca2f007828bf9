"""The developers' sample corpora: real documentation of eight vendors and languages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ingest.chunking import chunk_document
from ingest.document import FileContent
from ingest.errors import Unsupported
from ingest.reading import decode
from ingest.registry import loader_for


@pytest.fixture(scope="module")
def retrieval(shared: Path) -> Path:
    if not (shared / "retrieval").is_dir():
        pytest.skip(f"no retrieval corpora in {shared}")
    return shared / "retrieval"


def chunks_of(path: Path, root: Path, embedder: Any) -> list[str]:
    data = path.read_bytes()
    text, notes = decode(data, path)
    file = FileContent(path, data, text, notes, root)
    lines = text.split("\n")
    document = loader_for(file).load(file)
    assert all(1 <= s.start_line <= s.end_line <= len(lines) for s in document.sections)
    chunks = chunk_document(document, lines, embedder)[1]
    assert all(1 <= c.start_line <= c.end_line <= len(lines) for c in chunks)
    return [c.text for c in chunks]


def test_no_passage_that_answers_is_lost_or_cut_apart(retrieval: Path, embedder: Any) -> None:
    lines = (retrieval / "dev.jsonl").read_text().splitlines()
    gold = [g for line in lines for g in json.loads(line)["gold"]]
    assert gold
    root = retrieval / "corpora"
    files = {g["path"] for g in gold}
    chunks = {p: [" ".join(c.split()) for c in chunks_of(root / p, root, embedder)] for p in files}
    lost = [g for g in gold if not any(" ".join(g["substring"].split()) in c for c in chunks[g["path"]])]
    assert lost == []


@pytest.mark.full
def test_every_text_file_is_read(retrieval: Path, embedder: Any) -> None:
    read = 0
    for path in sorted((retrieval / "corpora").rglob("*")):
        if path.is_file() and path.suffix in (".rst", ".md", ".py", ".txt", ".inc"):
            try:
                read += bool(chunks_of(path, retrieval / "corpora", embedder))
            except Unsupported as error:
                raise AssertionError(path) from error
    assert read > 1000
