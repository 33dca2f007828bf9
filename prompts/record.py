"""The record of one synthesised prompt: text, slots and where every retrieved passage came from."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from kb.records import Hit, SkillRecord


@dataclass(frozen=True)
class Provenance:
    """One retrieved passage in one slot; `score` is retrieval's, `why` says what brought it."""

    slot: str
    chunk_id: str
    citation: str
    score: float
    why: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PromptRecord:
    """`slots` maps slot name to rendered text; `cut` lists what the token budget removed.

    `hits` and `skills` are the retrieved passages as objects, for generators that act on them directly.
    `digest` is the sha256 of the prompt text. `withheld` names what was kept from a hosted model: citations
    of local-only passages, and parts of earlier steps that may repeat such passages. `local_only` is True
    when the prompt has text of that kind, so that what a model makes of it must stay on this machine too.
    `tokenizer` says what counted `tokens`.
    """

    prompt: str
    tokens: int
    slots: dict[str, str]
    provenance: list[Provenance]
    digest: str
    cut: list[str] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    skills: list[SkillRecord] = field(default_factory=list)
    withheld: list[str] = field(default_factory=list)
    local_only: bool = False
    tokenizer: str = ""

    def to_json(self) -> dict[str, Any]:
        """The JSON contract of a prompt; `hits` and `skills` stay out, `provenance` names them."""
        return {
            "prompt": self.prompt,
            "tokens": self.tokens,
            "tokenizer": self.tokenizer,
            "slots": self.slots,
            "provenance": [asdict(entry) for entry in self.provenance],
            "digest": self.digest,
            "cut": self.cut,
            "withheld": self.withheld,
        }
