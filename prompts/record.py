"""The record of one synthesised prompt: text, slots and where every retrieved passage came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kb.records import Hit, SkillRecord


@dataclass(frozen=True)
class Provenance:
    slot: str
    chunk_id: str
    citation: str
    score: float
    why: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PromptRecord:
    """`slots` maps slot name to rendered text; `cut` lists what the token budget removed.

    `hits` and `skills` are the retrieved passages as objects, for generators that act on them directly.
    `digest` is the sha256 of the prompt text.
    """

    prompt: str
    tokens: int
    slots: dict[str, str]
    provenance: list[Provenance]
    digest: str
    cut: list[str] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    skills: list[SkillRecord] = field(default_factory=list)
