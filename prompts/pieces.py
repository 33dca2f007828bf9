"""The parts of a prompt that a token budget may remove, and the order in which it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kb.records import Hit, SkillRecord
from prompts.record import Provenance
from prompts.tokens import count_tokens

SLOTS = (
    "task",
    "problem",
    "target",
    "constraints",
    "guidance",
    "skills",
    "parent",
    "diagnosis",
    "failed",
    "output_format",
)
# Passages of equal rank in their slots are kept in this order.
_SLOT_ORDER = ("guidance", "skills", "constraints", "target")


@dataclass(frozen=True)
class Piece:
    """A removable text of a slot. `rank` counts from 0 within the slot; `label` names it when it is cut.

    `provenance` and `source` are set for retrieved passages.
    """

    slot: str
    rank: int
    text: str
    label: str
    provenance: Provenance | None = None
    source: Hit | SkillRecord | None = None


def by_importance(passages: Sequence[Piece], own: Sequence[Piece]) -> list[Piece]:
    """Most important first: `own` in its order (what the run itself knows), then passages by rank."""
    ranked = sorted(passages, key=lambda p: (p.rank, _SLOT_ORDER.index(p.slot)))
    return [*own, *ranked]


def fit(pieces: Sequence[Piece], room: int) -> tuple[list[Piece], list[Piece]]:
    """(kept, cut): the longest prefix of `pieces` whose tokens fit into `room`.

    A prefix, so that nothing is cut while something less important stays. Counted apart, texts never need
    fewer tokens than joined on lines of their own, so the prompt cannot come out larger.
    """
    used = 0
    for index, piece in enumerate(pieces):
        used += count_tokens(piece.text)
        if used > room:
            return list(pieces[:index]), list(pieces[index:])
    return list(pieces), []
