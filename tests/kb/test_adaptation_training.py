"""Mining hard negatives and training on them, with a tiny BERT of random weights."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kb import KnowledgeBase
from kb.adaptation import training
from kb.adaptation.examples import Pair, StoredPassage, divide, read_examples, write_examples
from kb.adaptation.negatives import mine
from kb.adaptation.rivals import stored_passages, with_lexical
from kb.adaptation.training import Recipe, train
from kb.embedding import SentenceTransformerEmbedder
from kb.errors import NothingToLearn, QuestionsInvalid

ROOT = Path(__file__).parents[2]


def unit(*degrees: float) -> Any:
    """Vectors in the plane at these angles."""
    angles = np.radians(np.array(degrees, dtype=np.float32))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def pair(chunk: int, scope: str = "s", lexical: Sequence[int] = (), kind: str = "question") -> Pair:
    return Pair(kind, f"q{chunk}", f"p{chunk}", chunk, scope, False, tuple(lexical))


def chunks_of(found: Sequence[StoredPassage]) -> list[int]:
    return sorted(p.chunk for p in found)


# --- mining ---


def test_negatives_are_near_wrong_and_of_the_scope() -> None:
    at = {1: 30, 2: 32, 3: 40, 4: 45, 5: 170}  # the right one, one as near, two near ones, one far away
    passages = [StoredPassage(chunk, "s", f"p{chunk}") for chunk in at]
    passages += [StoredPassage(1, "s", "more of the right chunk"), StoredPassage(6, "other", "p6")]
    near = unit(*at.values(), 50, 40)
    found = mine([pair(1)], passages, unit(0), unit(30), near, 3, random.Random(0))
    assert chunks_of(found[pair(1)]) == [3, 4, 5], "neither its chunk, nor what is as near, nor another scope"
    some = mine([pair(1)], passages, unit(0), unit(30), near, 1, random.Random(0))
    assert len(some[pair(1)]) == 1


def test_a_third_of_the_negatives_come_from_words() -> None:
    passages = [StoredPassage(chunk, "s", f"p{chunk}") for chunk in range(200)]
    near = unit(*(30 + 0.5 * chunk for chunk in range(200)))
    asked = [replace(pair(0), lexical=(0, 1, 190, 191, 999)), replace(pair(0), question="other")]
    (with_words, without) = mine(
        asked, passages, np.repeat(unit(0), 2, 0), np.repeat(unit(30), 2, 0), near, 3, random.Random(0)
    ).values()
    far = [c for c in chunks_of(with_words) if c >= 190]
    assert len(with_words) == 3
    assert len(far) == 1, "1 is too near, 0 is right, 999 is not stored; the others are drawn from"
    assert len(without) == 3
    assert max(chunks_of(without)) < 100, "from the nearest only"


def test_a_scope_without_passages_has_no_negatives() -> None:
    assert mine([pair(1)], [], unit(0), unit(30), unit()[:0], 3, random.Random(0)) == {}


# --- training ---

WORDS = ("apple", "bridge", "cloud", "desert", "engine", "forest", "garden", "harbor", "island", "jungle")


@pytest.fixture
def model(tiny_model: Path) -> Iterator[Any]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for so small a model, to wait for each other is all that more of them do
    yield SentenceTransformerEmbedder(tiny_model).load()
    torch.set_num_threads(threads)


@pytest.fixture
def lesson() -> tuple[list[Pair], list[StoredPassage]]:
    """Questions about one of ten words; for each there is a passage that has its words but for that one."""
    pairs, passages = [], []
    for i in range(24):
        word, other = WORDS[i % 10], WORDS[(i + 1) % 10]
        passages += [StoredPassage(2 * i, "s", f"number {i} of the {word}")]
        passages += [StoredPassage(2 * i + 1, "s", f"number {i} of the {other}")]
        pairs.append(Pair("question", f"{word} {i}", passages[-2].text, 2 * i, "s", False, (2 * i + 1,)))
    return pairs, passages


def test_a_batch_is_told_from_hard_negatives_but_not_from_what_answers(model: Any, lesson: Any) -> None:
    (first, second, *_), (_, wrong, *_) = lesson
    batch = [first, second]

    def loss(rivals: dict[Pair, list[StoredPassage]]) -> float:
        return float(training._loss(model.eval(), batch, rivals, 20.0).detach())

    alone = loss({})
    assert loss({first: [wrong]}) > alone + 0.1
    assert loss({first: [wrong], second: [wrong]}) == pytest.approx(loss({first: [wrong]}), abs=1e-4)
    both = [replace(wrong, chunk=first.chunk), replace(wrong, chunk=second.chunk)]
    assert loss({first: both[:1]}) < loss({first: [wrong]}), "no wrong answer to the first, but to the second"
    assert loss({first: both}) > alone


def test_training_leaves_the_model_as_it_was_and_follows_its_seed(model: Any, lesson: Any) -> None:
    pairs, passages = lesson
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    dropouts = [m.p for m in model.modules() if hasattr(m, "p")]
    recipe = Recipe(epochs=2, batch=12, learning_rate=1e-2, dropout=0.0, rank=4, negatives=1)
    steps = []
    factors = train(model, pairs, recipe, lambda done, total: steps.append((done, total)), passages)
    assert steps == [(i, 4) for i in range(1, 5)]
    assert any(bool(up.any()) for _, up in factors.values())
    again = train(model, pairs, recipe, passages=passages)
    without = train(model, pairs, replace(recipe, negatives=0))
    assert all(np.array_equal(factors[name][1], again[name][1]) for name in factors)
    assert not all(np.array_equal(factors[name][1], without[name][1]) for name in factors)
    assert set(model.state_dict()) == set(weights)
    assert all(bool((value == weights[name]).all()) for name, value in model.state_dict().items())
    assert [m.p for m in model.modules() if hasattr(m, "p")] == dropouts
    assert not model.training


def test_negatives_are_mined_anew_in_each_epoch(
    model: Any, lesson: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def recorded(pairs: Any, passages: Any, questions: Any, *rest: Any) -> Any:
        seen.append(questions)
        return mine(pairs, passages, questions, *rest)

    monkeypatch.setattr(training, "mine", recorded)
    train(model, lesson[0], Recipe(epochs=2, batch=12, learning_rate=1e-2, negatives=1), None, lesson[1])
    assert len(seen) == 2
    assert not np.allclose(seen[0], seen[1], atol=1e-3), "by the model as it is then"
    train(model, lesson[0], Recipe(epochs=1, batch=12), None, lesson[1])
    assert len(seen) == 2


# --- what is learnt from ---


def test_other_pairs_are_a_share_where_there_are_questions() -> None:
    others = [pair(i, kind=kind) for i in range(100) for kind in ("heading", "summary")]
    apart = [replace(p, held_out=True) for p in others]
    questions = [pair(i) for i in range(300)]
    taught, held = divide([*others, *apart, *questions], 10_000, auxiliary=0.35, held=60)
    assert [sum(p.kind == kind for p in taught) for kind in ("question", "heading", "summary")] == [
        300,
        35,
        35,
    ]
    assert [sum(p.kind == kind for p in held) for kind in ("heading", "summary")] == [60, 60]
    assert len(divide([*others, *apart], 10_000, auxiliary=0.35)[0]) == 200
    assert len(divide([*others, *apart, *questions], 320, auxiliary=0.35)[0]) == 320
    with pytest.raises(NothingToLearn):
        divide([*others, *questions], 10_000)


def test_examples_survive_their_file(tmp_path: Path) -> None:
    pairs = [pair(1, lexical=(3, 2)), replace(pair(2), held_out=True, question="ü\n")]
    passages = [StoredPassage(1, "s", "p1"), StoredPassage(3, "s", "p3\n")]
    write_examples(tmp_path / "x.gz", pairs, passages)
    assert read_examples(tmp_path / "x.gz") == (pairs, passages)


@pytest.mark.parametrize(
    "content", [b"", b"{}", gzip.compress(b"[]"), gzip.compress(b'{"question": 1}')], ids=range(4)
)
def test_a_damaged_file_of_examples_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.gz").write_bytes(content[:20])
    if content:
        with pytest.raises(QuestionsInvalid, match=r"x\.gz"):
            read_examples(tmp_path / "x.gz")


def test_words_find_other_chunks_of_the_scope(kb: KnowledgeBase, store: Callable[..., None]) -> None:
    store(kb, "a.md", "tiling of loads\n\ntiling of stores", scope="x")
    store(kb, "b.md", "tiling elsewhere", scope="y")
    passages = stored_passages(kb)
    assert sorted((p.scope, p.text.split("\n")[-1]) for p in passages) == [
        ("x", "tiling of loads"), ("x", "tiling of stores"), ("y", "tiling elsewhere"),
    ]  # fmt: skip
    right, wrong = (p.chunk for p in passages if p.scope == "x")
    asked = Pair("question", "how does tiling go", "", right, "x", False)
    assert [p.lexical for p in with_lexical(kb, [asked])] == [(wrong,)]


WITHOUT = """
import runpy, sys
sys.modules |= dict.fromkeys(("sqlalchemy", "sqlmodel", "chromadb", "onnxruntime"))  # as if not installed
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.full  # sentence-transformers takes its time to import
def test_training_needs_no_store(tiny_model: Path, tmp_path: Path, lesson: Any) -> None:
    pairs, passages = lesson
    apart = [replace(p, held_out=True) for p in pairs]
    write_examples(tmp_path / "pairs.gz", [*pairs * 3, *apart * 3], passages)
    script = ROOT / "benchmarks" / "adapter" / "train.py"
    options = ["--epochs", "2", "--negatives", "2", "--batch", "12", "--rank", "4"]
    command = [sys.executable, "-c", WITHOUT, script, tmp_path / "pairs.gz", tiny_model, tmp_path, *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["pairs"] == 72
    (file,) = tmp_path.glob("*.safetensors")
    assert SentenceTransformerEmbedder(tiny_model, adapters=[file]).embed(["x"]).shape == (1, 32)
