"""With the real embedding model: what the words do not share, the meaning finds."""

from __future__ import annotations

import pytest

from kb import KnowledgeBase
from kb.embedding import load_embedder
from kb.errors import EmbeddingFailed


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("consecutive lanes touching memory far apart", "coalescing.md"),
        ("rounding error in float16 accumulation", "precision.md"),
        ("normalised class scores of a classifier", "softmax.md"),
        ("recipe for vegetables", "cooking.md"),
    ],
)
def test_paraphrase_is_found(model_kb: KnowledgeBase, query: str, path: str) -> None:
    assert model_kb.query(query, k=1).hits[0].path == path


def test_model_vectors_are_unit_length_and_repeatable() -> None:
    embedder = load_embedder()
    first, second = embedder.embed(["tile the matrix"]), embedder.embed(["tile the matrix"])
    assert first.shape == (1, 384)
    assert float((first**2).sum()) == pytest.approx(1.0, abs=1e-5)
    assert (first == second).all()
    assert embedder.passage_tokens == 220


def test_missing_model_is_one_line() -> None:
    with pytest.raises(EmbeddingFailed, match="neither a folder nor") as caught:
        load_embedder("no-such/model")
    assert "\n" not in str(caught.value)
    assert caught.value.hint
