"""Prompt synthesis: one template, computed slots, tailored retrieval, a token budget, provenance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prompts.record import PromptRecord, Provenance
    from prompts.request import PromptRequest
    from prompts.synthesizer import Synthesizer

__all__ = ["PromptRecord", "PromptRequest", "Provenance", "Synthesizer"]

_HOME = {
    "PromptRecord": "prompts.record",
    "Provenance": "prompts.record",
    "PromptRequest": "prompts.request",
    "Synthesizer": "prompts.synthesizer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'prompts' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
