"""Adapted models take over like any other, and answer for as long as they are needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kb import KnowledgeBase, Settings
from kb.adaptation.adapt import adaptable, forget
from kb.adaptation.lowrank import set_aside, write_factors
from kb.embedding import load_embedder, model_folder, open_model
from kb.reembed import reembed
from kb.upkeep.gc import collect_garbage

WEIGHT = "encoder.layer.0.attention.self.query.weight"
Store = Callable[..., None]


@pytest.mark.parametrize("settings", [50_000], indirect=True)
def test_an_adapted_model_takes_over_like_any_other_and_is_taken_back(bundled: Settings) -> None:
    with KnowledgeBase.open(bundled) as kb:
        before = kb.embedder.model_id
        random = np.random.default_rng(0)
        factors = {WEIGHT: tuple(random.standard_normal(s).astype(np.float32) for s in ((4, 384), (384, 4)))}
        write_factors(kb.home / "adapters" / f"{before}.safetensors", factors, {})
    with KnowledgeBase.open(bundled) as kb:
        assert kb.embedder.model_id == before
        assert kb.serving.next is not None
        assert "with the bundled model as it is now; the bundled model as it was answers" in kb.notices[0]
        assert kb.query("tiling").hits
        assert reembed(kb).switched
        adapted = kb.embedder.model_id
        assert adapted != before
        assert forget(kb) is not None
        collect_garbage(kb)  # not what serves
    with KnowledgeBase.open(bundled) as kb:
        assert len([h for h in kb.query("tiling", k=50).hits if h.why["similarity"]]) == 30
        assert kb.embedder.model_id == adapted, "it answers until all is embedded anew"
        assert reembed(kb).switched
    with KnowledgeBase.open(bundled) as kb:
        assert kb.embedder.model_id == before
        assert collect_garbage(kb).adapters == 1
        assert len(list(kb.home.glob("adapters/*"))) == 1, "the copy of the one that ships with the package"


@pytest.mark.parametrize("settings", [50_000], indirect=True)
def test_a_model_that_is_adapted_once_more_answers_as_it_was(bundled: Settings) -> None:
    with KnowledgeBase.open(bundled) as kb:
        file = kb.home / "adapters" / f"{kb.embedder.model_id}.safetensors"
    served = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        factors = {WEIGHT: tuple(random.standard_normal(s).astype(np.float32) for s in ((4, 384), (384, 4)))}
        set_aside(file)
        write_factors(file, factors, {})
        with KnowledgeBase.open(bundled) as kb:
            served.append(kb.embedder.model_id)
            assert kb.serving.next is not None
            if seed < 2:
                assert reembed(kb).switched
    assert len(set(served)) == 3
    with KnowledgeBase.open(bundled) as kb:
        assert collect_garbage(kb).adapters == 1  # the first of the two that were set aside
        assert kb.embedder.model_id == served[-1]


@pytest.mark.parametrize("settings", [50_000], indirect=True)
def test_a_model_answers_on_when_the_package_ships_another_adapter(
    settings: Settings, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "shipped"
    monkeypatch.setattr("kb.embedding.SHIPPED_ADAPTERS", shipped)
    base = open_model(model_folder("")).model_id

    def ship(seed: int) -> None:
        random = np.random.default_rng(seed)
        pair = tuple(random.standard_normal(s).astype(np.float32) for s in ((4, 384), (384, 4)))
        write_factors(shipped / f"{base}.safetensors", {WEIGHT: pair}, {})

    ship(1)
    with KnowledgeBase.open(settings) as kb:
        store(kb, "a.md", "tiling in shared memory")
        first = kb.embedder.model_id
    ship(2)
    with KnowledgeBase.open(settings) as kb:
        assert kb.query("tiling").hits[0].why["similarity"] is not None
        assert kb.embedder.model_id == first
        assert "the bundled model as it was answers until all are" in kb.notices[0]
        collect_garbage(kb)
        assert reembed(kb).switched
        assert kb.embedder.model_id not in (first, base)
        collect_garbage(kb)
        assert len(list(kb.home.glob("adapters/*"))) == 1, "only of the one that serves now"


def test_the_adapter_that_shipped_before_still_makes_its_model(tmp_path: Path) -> None:
    assert load_embedder("", tmp_path, "be70bf73be7cd6c4").model_id == "be70bf73be7cd6c4"
    assert load_embedder("", tmp_path).model_id != "be70bf73be7cd6c4"


@pytest.mark.parametrize("settings", [50_000], indirect=True)
def test_what_the_settings_name_is_adapted_and_taken_back(bundled: Settings, tiny_model: Path) -> None:
    settings = bundled.model_copy(update={"embedding_model": str(tiny_model)})
    with KnowledgeBase.open(settings) as kb:
        assert kb.embedder.embed(["x"]).shape == (1, 384), "the bundled model answers still"
        named = adaptable(kb)
        assert named.folder == tiny_model
        ours = kb.home / "adapters" / f"{named.model_id}.safetensors"
        ours.write_bytes(b"damaged")
        assert forget(kb) == ours
        assert forget(kb) is None
