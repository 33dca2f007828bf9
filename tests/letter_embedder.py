"""An embedding model for tests in which similarity is not the subject."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class LetterEmbedder:
    """Vectors of letter counts: enough for an index that works, instant to load."""

    model_id = "letters"
    passage_tokens = 220
    window = 256
    cutting = "words"
    sends_to = ""
    runtime = "test"

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def embed(self, texts: Sequence[str]) -> Any:
        import numpy as np

        counts = np.array([[1 + t.lower().count(c) for c in "abcdefghijklmnopqrstuvwxyz"] for t in texts])
        return (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)
