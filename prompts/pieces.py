"""The parts of a prompt that a token budget may remove, and the order in which it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kb.records import Hit, SkillRecord
from prompts.record import Provenance

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
_PASSAGE_SHARE = 4
_JOINT = 1  # tokens that the empty line before a piece may take


@dataclass(frozen=True)
class Piece:
    """A removable text of a slot. `rank` counts from 0 within the slot; `label` names it when it is cut.

    `part` says where in the slot it stands, if not where the slot's own texts do. `provenance`, `source` and
    `ref` are set for retrieved passages.
    """

    slot: str
    rank: int
    text: str
    label: str
    provenance: Provenance | None = None
    source: Hit | SkillRecord | None = None
    part: str = ""
    ref: str = ""

    @property
    def place(self) -> str:
        return self.part or self.slot


def fit(
    own: Sequence[Piece], passages: Sequence[Piece], room: int, count: Callable[[str], int]
) -> tuple[list[Piece], list[Piece]]:
    """(kept, cut): what fits into `room` tokens, as `count` counts texts apart.

    What the run itself knows (`own`) comes first, but leaves a quarter of the room to passages: a parent too
    long for the rest is cut alone, and retrieval goes on. Of the passages, the longest prefix by rank is
    kept, so that none is cut while a less important one stays. The least important piece is the last of
    `kept`.
    """
    ranked = sorted(passages, key=lambda p: (p.rank, _SLOT_ORDER.index(p.slot)))
    sizes = [count(piece.text) + _JOINT for piece in ranked]
    kept: list[Piece] = []
    cut: list[Piece] = []
    left = room - min(sum(sizes), room // _PASSAGE_SHARE)
    used = 0
    for piece in own:
        size = count(piece.text) + _JOINT
        fits = used + size <= left
        used += size if fits else 0
        (kept if fits else cut).append(piece)
    for index, (piece, size) in enumerate(zip(ranked, sizes, strict=True)):
        used += size
        if used > room:
            return kept, [*cut, *ranked[index:]]
        kept.append(piece)
    return kept, cut
