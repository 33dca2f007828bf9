"""The record of one synthesised prompt: text, slots and where every retrieved passage came from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kb.records import Hit, SkillRecord
from prompts.request import PromptRequest

if TYPE_CHECKING:
    from prompts.pieces import Piece


@dataclass(frozen=True)
class Provenance:
    """One retrieved passage in one slot; `score` is retrieval's, `why` says what brought it."""

    slot: str
    chunk_id: str
    citation: str
    score: float
    why: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Consulted:
    """One question of the step and how many documents of the index it was asked in."""

    slot: str
    purpose: str
    query: str
    documents: int


@dataclass(frozen=True)
class Shown:
    """A retrieved passage as it stands in a prompt. `skill` names the skill that it is; `sha256` is of the
    text as it was rendered.
    """

    slot: str
    ref: str
    chunk_id: str
    citation: str
    skill: str
    sha256: str


@dataclass(frozen=True)
class Composition:
    """What a prompt was made from, enough to make it again: `own` are the positions of those of the request's
    own pieces that were kept, `template` the sha256 of the template, `knowledge` the digest of the knowledge
    base.
    """

    request: PromptRequest
    own: list[int]
    passages: list[Shown]
    template: str
    knowledge: str

    @classmethod
    def of(
        cls,
        request: PromptRequest,
        kept: Sequence[Piece],
        own: Sequence[Piece],
        template: str,
        knowledge: str,
    ) -> Composition:
        """The composition of the prompt that has `kept` of its `own` pieces and of the retrieved ones."""
        passages = []
        for piece in kept:
            if piece.provenance is not None and piece.source is not None:
                passages.append(
                    Shown(
                        slot=piece.slot,
                        ref=piece.ref,
                        chunk_id=piece.provenance.chunk_id,
                        citation=piece.provenance.citation,
                        skill=piece.source.name if isinstance(piece.source, SkillRecord) else "",
                        sha256=hashlib.sha256(piece.text.encode("utf-8")).hexdigest(),
                    )
                )
        positions = [i for i, piece in enumerate(own) if any(piece is one for one in kept)]
        return cls(request, positions, passages, template, knowledge)


@dataclass(frozen=True)
class PromptRecord:
    """`slots` maps slot name to rendered text; `cut` lists what the token budget removed.

    `hits` and `skills` are the retrieved passages as objects, for generators that act on them directly.
    `digest` is the sha256 of the prompt text. `withheld` names what was kept from a hosted model: citations
    of local-only passages, and parts of earlier steps that may repeat such passages. `local_only` is True
    when the prompt has text of that kind, so that what a model makes of it must stay on this machine too.
    `tokenizer` says what counted `tokens`. `level` is the specificity that was asked for, `consulted` what
    was asked, `deferred` the number of documents about each bottleneck that was left for another step.
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
    level: str = ""
    consulted: list[Consulted] = field(default_factory=list)
    deferred: dict[str, int] = field(default_factory=dict)
    composition: Composition | None = None

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
            "level": self.level,
            "consulted": [asdict(entry) for entry in self.consulted],
            "deferred": self.deferred,
            "template": self.composition.template if self.composition else "",
            "knowledge": self.composition.knowledge if self.composition else "",
        }
