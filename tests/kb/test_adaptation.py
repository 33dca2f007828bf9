"""Fitting the embedding model to the stored documents: the pairs, the file, the comparison, and the whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kb import KnowledgeBase, Settings
from kb.adaptation import lowrank
from kb.adaptation.adapt import adapt, forget
from kb.adaptation.compare import compare
from kb.adaptation.examples import Pair
from kb.adaptation.pairs import held_out, read_questions, stored_pairs
from kb.adaptation.training import Recipe, batches
from kb.documents import DocumentWriter, NewChunk, NewDocument, NewSection
from kb.embedding import OnnxEmbedder, SentenceTransformerEmbedder, model_folder, open_model
from kb.errors import EmbeddingFailed, NothingToLearn, QuestionsInvalid
from kb.reembed import reembed
from kb.tables import Source

BODY = "Each row of the tile is read twice, so that the second pass finds it in the cache of the core. " * 2


def store(
    kb: KnowledgeBase,
    path: str,
    sections: Sequence[tuple[str, str]],
    scope: str = "vendor",
    *,
    source: int = 1,
    sha256: str = "",
    passages: tuple[str, ...] = (),
) -> None:
    """One document; every section (heading, text) takes ten lines."""
    with kb.session() as session:
        if session.get(Source, 1) is None:
            session.add(Source(id=1, key="/docs", name="docs", root="/docs"))
            session.commit()
    chunks = [
        NewChunk(i, heading, text, 10 * i + 1, 10 * i + 10, None, passages or (f"{heading}\n{text}",))
        for i, (heading, text) in enumerate(sections)
    ]
    DocumentWriter(kb).write(
        [
            NewDocument(
                source_id=source, path=path, location=f"/docs/{path}", sha256=sha256 or path, recipe="1",
                text="x",
                loader="text", kind="document", scope=scope, title=path, size=1,
                sections=[
                    NewSection(f"{path} › {h}", 10 * i + 1, 10 * i + 10) for i, (h, _) in enumerate(sections)
                ],
                chunks=chunks,
            )
        ]
    )  # fmt: skip


def of_kind(pairs: Sequence[Pair], kind: str) -> list[Pair]:
    return [p for p in pairs if p.kind == kind]


# --- pairs ---


def test_a_heading_asks_for_its_text_without_itself(kb: KnowledgeBase) -> None:
    store(kb, "a.md", [("Reading tiles twice", f"## Reading tiles twice\n\n{BODY}"), ("Short", "little")])
    (pair,) = of_kind(stored_pairs(kb), "heading")
    assert pair.question == "Reading tiles twice"
    assert pair.passage == BODY.strip()
    assert (pair.scope, pair.held_out) == ("vendor", held_out("a.md"))


def test_a_heading_that_many_sections_have_asks_for_nothing(kb: KnowledgeBase) -> None:
    for i in range(4):
        store(kb, f"{i}.md", [("Parameters", f"{BODY} {i}"), (f"Section number {i}", f"{BODY} {i}")])
    assert {p.question for p in of_kind(stored_pairs(kb), "heading")} == {
        f"Section number {i}" for i in range(4)
    }


def test_the_first_sentence_asks_for_the_rest(kb: KnowledgeBase) -> None:
    text = f"f(x, y)\n\nLoad a block of rows from the tensor. {BODY}"
    store(kb, "a.md", [("f", text)])
    (pair,) = of_kind(stored_pairs(kb), "summary")
    assert pair.question == "Load a block of rows from the tensor."
    assert pair.question not in pair.passage
    assert pair.passage.startswith("f(x, y)")


def test_code_and_tables_are_no_sentences(kb: KnowledgeBase) -> None:
    rows = "Name | use of the thing and a few words more. " * 5
    store(kb, "a.md", [("f", f"{rows}\n\n{BODY}"), ("g", f"Assign = the value of it; to x and y. {BODY}")])
    assert all("|" not in p.question and "=" not in p.question for p in of_kind(stored_pairs(kb), "summary"))


def test_a_sentence_that_names_another_section_asks_for_it(kb: KnowledgeBase) -> None:
    store(
        kb, "a.md",
        [
            ("Copies", "If the tile is larger than the buffer use :func:`~isa.copy_tile` in a loop. Fine."),
            ("isa.copy_tile", "isa.copy_tile(dst, src)\n\nMoves one tile. " + BODY),
        ],
    )  # fmt: skip
    store(
        kb,
        "b.md",
        [("Elsewhere", "Here the call `copy_tile` means something of another vendor entirely.")],
        "other",
    )
    (pair,) = of_kind(stored_pairs(kb), "reference")
    assert pair.question.startswith("If the tile is larger")
    assert pair.passage.startswith("isa.copy_tile(dst, src)")


def test_a_name_of_two_sections_or_a_list_of_names_refers_to_none(kb: KnowledgeBase) -> None:
    both = ("x.copy_tile", "x.copy_tile(dst, src) " + BODY)
    store(
        kb,
        "a.md",
        [both, ("y.copy_tile", BODY), ("Text", "One may use `copy_tile` here and it will be good.")],
    )
    many = "See `x.copy_tile` and `y.copy_tile` and `z.other_call` for what there is of this kind."
    store(kb, "b.md", [("List", many)])
    assert not of_kind(stored_pairs(kb), "reference")


def test_questions_are_found_by_path_and_line(kb: KnowledgeBase, tmp_path: Path) -> None:
    store(kb, "d/a.md", [("First", "one"), ("Second", "two")])
    file = tmp_path / "q.jsonl"
    rows = [
        {"at": "d/a.md:12", "q": ["what?", "how?"]},
        {"at": "d/a.md:3-9", "q": ["who?"]},
        {"at": "gone.md:1", "q": ["?"]},
    ]
    file.write_text("\n".join(json.dumps(row) for row in rows))
    found = read_questions(kb, file, kb.embedder)
    assert [(p.question, p.passage) for p in found] == [
        ("what?", "Second\ntwo"),
        ("how?", "Second\ntwo"),
        ("who?", "First\none"),
    ]


def of_two_sources(kb: KnowledgeBase, *, same: bool) -> None:
    """a.md in two sources, with the same content or other."""
    store(kb, "a.md", [("First", "one")])
    with kb.session() as session:
        session.add(Source(id=2, key="/other", name="other", root="/other"))
        session.commit()
    second = [("First", "one" if same else "another")]
    store(kb, "a.md", second, source=2, sha256="a.md" if same else "another")


def test_a_path_of_two_sources_is_told_apart(kb: KnowledgeBase, tmp_path: Path) -> None:
    of_two_sources(kb, same=False)
    file = tmp_path / "q.jsonl"
    file.write_text(
        '{"at": "a.md:1", "source": "/other", "q": ["x"]}\n{"at": "a.md:1", "source": "/docs", "q": ["y"]}'
    )
    assert [p.passage for p in read_questions(kb, file, kb.embedder)] == ["First\nanother", "First\none"]
    file.write_text('{"at": "a.md:1", "q": ["x"]}')
    with pytest.raises(QuestionsInvalid, match=r"line 1: a\.md is in several sources: /docs, /other"):
        read_questions(kb, file, kb.embedder)


def test_of_two_copies_either_answers(kb: KnowledgeBase, tmp_path: Path) -> None:
    of_two_sources(kb, same=True)
    (tmp_path / "q.jsonl").write_text('{"at": "a.md:1", "q": ["x"]}')
    assert [p.passage for p in read_questions(kb, tmp_path / "q.jsonl", kb.embedder)] == ["First\none"]


def test_stored_passages_are_not_embedded_again_to_find_the_nearest(
    kb: KnowledgeBase, embedder: Any, tmp_path: Path
) -> None:
    store(kb, "a.md", [("First", "one")], passages=("about cats", "about dogs"))
    (tmp_path / "q.jsonl").write_text('{"at": "a.md:1", "q": ["what of dogs"]}')
    embedder.embedded.clear()
    assert [p.passage for p in read_questions(kb, tmp_path / "q.jsonl", embedder)] == ["about dogs"]
    assert embedder.embedded == ["what of dogs"]


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"at": "a.md", "q": []}', '{"at": "a.md:x", "q": []}', '{"at": "a.md:1"}']
)
def test_malformed_questions_are_named(kb: KnowledgeBase, tmp_path: Path, line: str) -> None:
    (tmp_path / "q.jsonl").write_text(f'{{"at": "a.md:1", "q": []}}\n{line}\n')
    with pytest.raises(QuestionsInvalid, match="line 2"):
        read_questions(kb, tmp_path / "q.jsonl", kb.embedder)
    with pytest.raises(QuestionsInvalid, match="cannot be read"):
        read_questions(kb, tmp_path / "absent.jsonl", kb.embedder)


def test_batches_are_of_one_scope_and_see_every_pair_once() -> None:
    import random

    pairs = [Pair("heading", f"q{i}", f"p{i}", i, "ab"[i % 2], False) for i in range(100)]
    found = batches(pairs, 20, random.Random(0))
    assert all(len({p.scope for p in batch}) == 1 for batch in found)
    assert sorted(p.chunk for batch in found for p in batch) == list(range(100))
    assert found != batches(pairs, 20, random.Random(1))


# --- the file ---


@pytest.fixture(scope="module")
def bundled() -> OnnxEmbedder:
    embedder = open_model(model_folder(""))
    assert isinstance(embedder, OnnxEmbedder)
    return embedder


WEIGHT = "encoder.layer.3.output.dense.weight"  # (384, 1536)


def random_factors(seed: int = 0, scale: float = 0.05) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    down, up = rng.standard_normal((4, 1536)), scale * rng.standard_normal((384, 4))
    return {WEIGHT: (down.astype(np.float32), up.astype(np.float32))}


def adapter(folder: Path, model_id: str, seed: int = 0) -> Path:
    file = folder / f"{model_id}.safetensors"
    lowrank.write_factors(file, random_factors(seed), {"pairs": "0"})
    return file


def test_an_adapter_changes_vectors_and_identity(bundled: OnnxEmbedder, tmp_path: Path) -> None:
    base = open_model(bundled.folder)
    adapter(tmp_path, base.model_id)
    adapted = open_model(bundled.folder, [tmp_path])
    assert adapted.model_id != base.model_id
    assert adapted.runtime == "onnxruntime, adapted"
    similarity = float(adapted.embed(["bank conflicts"])[0] @ base.embed(["bank conflicts"])[0])
    assert similarity < 0.99
    assert np.allclose(base.embed(["bank conflicts"]), open_model(bundled.folder).embed(["bank conflicts"]))


@pytest.mark.full  # sentence-transformers takes its time to import
def test_both_runtimes_adapt_alike(bundled: OnnxEmbedder, tmp_path: Path) -> None:
    file = adapter(tmp_path, open_model(bundled.folder).model_id)
    texts = ["bank conflicts", "how large may a tile be?", "x" * 300]
    ours = OnnxEmbedder(bundled.folder, [file])
    theirs = SentenceTransformerEmbedder(bundled.folder, adapters=[file])
    assert np.min(np.sum(ours.embed(texts) * theirs.embed(texts), axis=1)) > 0.9999
    assert ours.model_id == theirs.model_id


def test_adapters_of_several_folders_apply_in_turn_and_can_be_left_out(
    bundled: OnnxEmbedder, tmp_path: Path
) -> None:
    base = open_model(bundled.folder).model_id
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    adapter(shipped, base)
    once = open_model(bundled.folder, [shipped]).model_id
    adapter(own, once, seed=1)
    adapter(own, base, seed=2)  # of the model without what ships: not this one
    twice = open_model(bundled.folder, [shipped, own])
    assert isinstance(twice, OnnxEmbedder)
    assert [f.parent.name for f in twice.adapters] == ["shipped", "own"]
    assert open_model(bundled.folder, [shipped, own], once).model_id == once
    assert open_model(bundled.folder, [shipped, own], base).model_id == base


def test_damaged_and_foreign_adapters_are_errors(bundled: OnnxEmbedder, tmp_path: Path) -> None:
    base = open_model(bundled.folder).model_id
    file = adapter(tmp_path, base)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(EmbeddingFailed, match="no adapter"):
        open_model(bundled.folder, [tmp_path])
    lowrank.write_factors(file, {"encoder.layer.99.x": random_factors()[WEIGHT]}, {})
    with pytest.raises(EmbeddingFailed, match="does not fit"):
        open_model(bundled.folder, [tmp_path])


@pytest.mark.parametrize(
    "tensors",
    [
        {"w.down": (4, 8)},
        {"w.down": (4, 8), "w.up": (8, 3)},
        {"w.down": (4,), "w.up": (8, 4)},
        {"x.down": (4, 8), "w.up": (8, 4)},
        {},
    ],
    ids=range(5),
)
def test_what_is_no_pair_of_matrices_is_no_adapter(tmp_path: Path, tensors: dict[str, Any]) -> None:
    from safetensors.numpy import save_file

    save_file({n: np.ones(shape, np.float16) for n, shape in tensors.items()}, tmp_path / "a.safetensors")
    with pytest.raises(EmbeddingFailed, match="no adapter"):
        lowrank.read_factors(tmp_path / "a.safetensors")


def test_an_adapter_with_what_is_no_number_is_refused(tmp_path: Path) -> None:
    down, up = random_factors()[WEIGHT]
    up[0, 0] = np.nan
    lowrank.write_factors(tmp_path / "a.safetensors", {WEIGHT: (down, up)}, {})
    with pytest.raises(EmbeddingFailed, match="no number"):
        lowrank.read_factors(tmp_path / "a.safetensors")


# --- the comparison ---


class Table:
    """A model whose vectors are given: what is not in the table is far from everything."""

    passage_tokens, window, runtime, sends_to, cutting, model_id = 60, 64, "test", "", "t", "table"

    def __init__(self, places: dict[str, int], noise: int = 0) -> None:
        self.places, self.rng = places, np.random.default_rng(noise)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [1] * len(texts)

    def embed(self, texts: Sequence[str]) -> Any:
        vectors = np.zeros((len(texts), 200), np.float32)
        for row, text in enumerate(texts):
            vectors[row, self.places.get(text, self.rng.integers(100, 200))] = 1
        return vectors


def test_a_model_that_finds_the_answers_is_better_and_chance_is_not() -> None:
    pairs = [Pair("heading" if i % 2 else "question", f"q{i}", f"p{i}", i, "s", True) for i in range(60)]
    right = {f"{side}{i}": i for i in range(60) for side in "qp"}
    overall, kinds = compare(Table({}), Table(right), pairs)
    assert overall.better
    assert (overall.mrr_after, overall.recall_after) == (1.0, 1.0)
    assert set(kinds) == {"heading", "question"}
    assert not compare(Table(right), Table(right), pairs)[0].better
    assert not compare(Table(right), Table({}), pairs)[0].better
    assert not compare(Table({}, 1), Table({}, 2), pairs)[0].better


def test_passages_of_the_same_chunk_and_repetitions_are_no_rivals() -> None:
    pairs = [Pair("question", f"q{i}", "same" if i < 20 else f"p{i}", i // 2, "s", True) for i in range(60)]
    places = {"same": 1, **{f"q{i}": 1 for i in range(60)}}
    overall, _ = compare(Table(places), Table(places), pairs[:20])
    assert overall.mrr_before == 1.0


# --- the whole ---


def test_too_few_documents_are_nothing_to_learn_from(settings: Settings) -> None:
    with KnowledgeBase.open(settings) as kb:
        store(kb, "a.md", [("Reading tiles twice", BODY)])
        with pytest.raises(NothingToLearn, match="1 pairs to learn from"):
            adapt(kb)


def test_a_model_that_is_not_in_files_cannot_be_adapted(kb: KnowledgeBase) -> None:
    with pytest.raises(EmbeddingFailed, match="model in files"):
        adapt(kb)


@pytest.fixture(scope="module")
def tiny(bundled: OnnxEmbedder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of random weights that trains within seconds, with the bundled model's tokenizer."""
    import torch
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("models") / "tiny"
    shutil.copytree(bundled.folder, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=30522, **shape)).save_pretrained(folder)
    shutil.copytree(bundled.folder / "1_Pooling", folder / "1_Pooling", dirs_exist_ok=True)
    pooling = folder / "1_Pooling" / "config.json"
    known = json.loads(pooling.read_text())
    pooling.write_text(json.dumps(known | {k: 32 for k in known if k.endswith("dimension")}))
    return folder


ASKED = ("apple", "bridge", "cloud", "desert", "engine", "forest", "garden", "harbor", "island", "jungle")
SAID = ("violin", "window", "yellow", "zebra", "rocket", "saddle", "tunnel", "uniform", "valley", "walnut")


def synonyms(kb: KnowledgeBase, file: Path, *, consistent: bool) -> None:
    """320 documents about ten things that questions call by other words, or by any word at all."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(320):
        topic = i % len(SAID)
        words = [f"n{rng.integers(100)}" for _ in range(3)]
        store(
            kb,
            f"{i}.md",
            [(f"Part {i}", f"{words[0]} the {SAID[topic]} {words[1]} {SAID[topic]} {words[2]}")],
        )
        asked = ASKED[topic if consistent else int(rng.integers(len(ASKED)))]
        rows.append(
            {"at": f"{i}.md:1", "q": [f"{words[0]} what of {asked} {words[2]}", f"{asked} {words[1]}?"]}
        )
    file.write_text("\n".join(json.dumps(row) for row in rows))


@pytest.mark.full
def test_what_helps_is_kept_and_can_be_undone(
    settings: Settings, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings.model_copy(update={"embedding_model": str(tiny)})
    with KnowledgeBase.open(settings) as kb:
        synonyms(kb, tmp_path / "q.jsonl", consistent=True)
        before = kb.embedder.model_id
        recipe = Recipe(epochs=12, batch=32, learning_rate=5e-3)
        stages = []
        found = adapt(
            kb,
            questions=[tmp_path / "q.jsonl"],
            recipe=recipe,
            progress=lambda s, d, t: stages.append((s, d, t)),
        )
    assert found.kept
    assert found.overall.gain_ci[0] > 0
    assert found.by_kind["question"].mrr_after > found.by_kind["question"].mrr_before
    assert found.trained_on["question"] > 500
    assert found.file == settings.home / "adapters" / f"{before}.safetensors"
    assert {s for s, _, _ in stages} == {"training", "comparing"}
    assert stages[-1][1] == stages[-1][2]
    with KnowledgeBase.open(settings) as kb:
        assert kb.embedder.model_id == before  # until everything is embedded anew
        assert reembed(kb).switched
    with KnowledgeBase.open(settings) as kb:
        assert kb.embedder.model_id == found.model_id != before
        with monkeypatch.context() as patch:  # once more, whether that gains or not
            patch.setattr("kb.adaptation.adapt.compare", lambda *_: (found.overall, {}))
            again = adapt(kb, questions=[tmp_path / "q.jsonl"], recipe=Recipe(epochs=1, negatives=1))
        assert (again.kept, again.file) == (True, found.file)
        assert again.model_id != found.model_id
    with KnowledgeBase.open(settings) as kb:
        assert kb.embedder.model_id == found.model_id, "what served still does"
        assert forget(kb) == found.file
        assert forget(kb) is None
    with KnowledgeBase.open(settings) as kb:
        reembed(kb)
    with KnowledgeBase.open(settings) as kb:
        assert kb.embedder.model_id == before


@pytest.mark.full
def test_what_does_not_help_is_not_kept(settings: Settings, tiny: Path, tmp_path: Path) -> None:
    settings = settings.model_copy(update={"embedding_model": str(tiny)})
    with KnowledgeBase.open(settings) as kb:
        synonyms(kb, tmp_path / "q.jsonl", consistent=False)
        before = kb.embedder.model_id
        found = adapt(kb, questions=[tmp_path / "q.jsonl"], recipe=Recipe(epochs=1, learning_rate=1e-5))
        assert not found.kept
        assert (found.file, found.model_id) == (None, before)
        assert not list(kb.home.glob("adapters/**/*.safetensors"))
