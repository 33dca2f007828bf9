"""Real store, real Chroma. `kb` has a small deterministic embedding, `model_kb` the real one."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kb import KnowledgeBase, Settings

sys.path.insert(0, str(Path(__file__).parent))  # what several tests share


class HashEmbedder:
    """Every word has a fixed random direction; a text is the sum of its words."""

    model_id = "hash-embedder"
    passage_tokens = 60
    window = 64
    cutting = "words"
    sends_to = ""
    runtime = "test"

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(re.findall(r"\w+|[^\w\s]", t)) for t in texts]

    def embed(self, texts: Sequence[str]) -> Any:
        self.embedded += texts
        vectors = np.stack(
            [np.sum([_word(w) for w in re.findall(r"\w+", t.lower()) or [""]], axis=0) for t in texts]
        )
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _word(word: str) -> Any:
    seed = int.from_bytes(hashlib.sha256(word.encode("utf-8", "replace")).digest()[:4], "big")
    return np.random.default_rng(seed).standard_normal(32)


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", lock_timeout_s=5.0, max_file_mb=0.5)


@pytest.fixture
def kb(settings: Settings, embedder: HashEmbedder) -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open(settings, embedder=embedder) as opened:
        yield opened


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A small folder of documents of several kinds."""
    root = tmp_path / "corpus"
    (root / "guides").mkdir(parents=True)
    (root / "guides" / "tiling.md").write_text(
        "# Tiling\n\nTiles fit the cache.\n\n## Sizes\n\nUse 32 by 32.\n"
    )
    (root / "guides" / "vectors.txt").write_text(
        "Vector loads\n============\n\nLoad sixteen bytes at once.\n"
    )
    (root / "kernel.py").write_text(
        '"""Adds."""\n\ndef add(x, y):\n    """Return the sum."""\n    return x + y\n'
    )
    (root / "rocm.md").write_text("---\nscope: amd-hip\n---\n# Wavefronts\n\nA wavefront has 64 lanes.\n")
    return root


@pytest.fixture(scope="session")
def shared() -> Path:
    """The developers' sample material; tests that need it are skipped where it is absent."""
    root = Path(os.environ.get("KERNELEVOLVE_SHARED") or Path(__file__).resolve().parents[3] / "shared")
    if not root.is_dir():
        pytest.skip(f"no sample material at {root}")
    return root


@pytest.fixture(scope="session")
def model_kb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnowledgeBase]:
    """The real embedding model over a few short documents."""
    from ingest import ingest_paths

    root = tmp_path_factory.mktemp("model")
    documents = {
        "coalescing.md": "# Access patterns\n\nNeighbouring threads should read neighbouring addresses.\n",
        "precision.md": "# Sums\n\nHalf precision loses small addends once the total grows.\n",
        "softmax.md": "# Softmax\n\nSubtract the row's largest value before the exponential.\n",
        "cooking.md": "# Soup\n\nSimmer the carrots gently for an hour.\n",
    }
    for name, text in documents.items():
        (root / name).write_text(text)
    with KnowledgeBase.open(Settings(home=root / "home")) as opened:
        ingest_paths(opened, [root / name for name in documents])
        yield opened
