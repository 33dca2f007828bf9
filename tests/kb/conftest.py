"""A real store and real Chroma with a small deterministic embedding; meaning is tested in tests/ingest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kb import KnowledgeBase, Settings
from kb.documents import DocumentWriter, NewChunk, NewDocument, NewSection
from kb.tables import Source


class HashEmbedder:
    """Every word has a fixed random direction; a text is the sum of its words."""

    passage_tokens = 60
    runtime = "test"

    def __init__(self, model_id: str = "hash-embedder-1", dimension: int = 64) -> None:
        self.model_id = model_id
        self.dimension = dimension
        self.embedded: list[str] = []

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(t.split()) for t in texts]

    def embed(self, texts: Sequence[str]) -> Any:
        self.embedded += texts
        vectors = np.stack([self._vector(t) for t in texts])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def _vector(self, text: str) -> Any:
        words = re.findall(r"\w+", text.lower()) or ["empty"]
        return np.sum([self._word(w) for w in words], axis=0).astype(np.float32)

    def _word(self, word: str) -> Any:
        seed = int.from_bytes(hashlib.sha256(f"{self.model_id}{word}".encode()).digest()[:4], "big")
        return np.random.default_rng(seed).standard_normal(self.dimension)


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder()


@pytest.fixture
def make_embedder() -> type[HashEmbedder]:
    return HashEmbedder


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", lock_timeout_s=5.0)


@pytest.fixture
def kb(settings: Settings, embedder: HashEmbedder) -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open(settings, embedder=embedder) as opened:
        yield opened


Store = Callable[..., None]


@pytest.fixture
def store() -> Store:
    """store(kb, path, text, scope=…, kind=…): one document with one chunk per paragraph."""

    def write(
        kb: KnowledgeBase, path: str, text: str, scope: str = "generic", kind: str = "document"
    ) -> None:
        with kb.session() as session:
            from sqlmodel import select

            source = session.exec(select(Source)).first()
            if source is None:
                source = Source(key="/test", name="test", root="/test")
                session.add(source)
                session.commit()
        chunks = []
        line = 1
        for paragraph in text.split("\n\n"):
            last = line + paragraph.count("\n")
            chunks.append(NewChunk(0, path, paragraph, line, last, None, (f"{path}\n{paragraph}",)))
            line = last + 2
        document = NewDocument(
            source_id=source.id or 0, path=path, location=f"/test/{path}", sha256=path, recipe="", text=text,
            loader="test", kind=kind, scope=scope, title=path, size=len(text),
            sections=[NewSection("Heading", 1, line - 2)], chunks=chunks,
        )  # fmt: skip
        DocumentWriter(kb).write([document])

    return write
