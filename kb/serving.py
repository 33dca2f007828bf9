"""Which embedding model answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kb.settings import ENDPOINT

if TYPE_CHECKING:
    from kb.embedding import Embedder
    from kb.settings import Settings


def open_embedder(
    settings: Settings, name: str | None = None, base_url: str | None = None, model_id: str = ""
) -> Embedder:
    """The model called `name`, of an endpoint at `base_url`; without them, the one that the settings name.

    `model_id` is what is known of the model from before: an endpoint is not asked again, and of adapters only
    those are applied that make it up. Raises EmbeddingFailed.
    """
    name = settings.embedding_model if name is None else name
    if name.startswith(ENDPOINT):
        from kb.embedding_endpoint import EndpointEmbedder

        return EndpointEmbedder(
            name.removeprefix(ENDPOINT),
            settings.embedding_base_url if base_url is None else base_url,
            window=settings.embedding_window,
            timeout_s=settings.embedding_timeout_s,
            model_id=model_id,
        )
    from kb.embedding import load_embedder

    return load_embedder(name, settings.home / "adapters", model_id)
