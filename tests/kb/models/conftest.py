"""Two embedding models, of which one takes the place of the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stored_vectors import TEXTS

from kb import KnowledgeBase, Settings
from kb.errors import EmbeddingFailed

Store = Callable[..., None]
Open = Callable[..., KnowledgeBase]


@pytest.fixture(params=[0, 50_000], ids=["chroma", "exact"])
def settings(tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    return Settings(home=tmp_path / "home", lock_timeout_s=5.0, exact_passages=request.param)


@pytest.fixture
def models(make_embedder: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `embedding_model` may name. What is taken out cannot be loaded any more."""
    known = {"old": make_embedder("old"), "new": make_embedder("new", dimension=32)}

    def load(settings: Settings, name: str | None = None, *_: str, **__: str) -> Any:
        name = settings.embedding_model if name is None else name
        if name not in known:
            raise EmbeddingFailed(f"no model {name!r}")
        return known[name]

    monkeypatch.setattr("kb.serving.open_embedder", load)
    return known


@pytest.fixture
def opened(settings: Settings, models: Any) -> Open:
    def of(name: str, **options: Any) -> KnowledgeBase:
        return KnowledgeBase.open(settings.model_copy(update={"embedding_model": name}), **options)

    return of


@pytest.fixture
def filled(opened: Open, store: Store) -> None:
    with opened("old") as kb:
        for i, text in enumerate(TEXTS):
            store(kb, f"{i}.md", text, scope="generic" if i % 2 else "nvidia")


@pytest.fixture
def bundled(settings: Settings, store: Store) -> Settings:
    """A home that the bundled model serves."""
    with KnowledgeBase.open(settings) as kb:
        for i in range(30):
            store(kb, f"{i}.md", f"passage number {i} about tiling and {'loads ' * i}")
    return settings
