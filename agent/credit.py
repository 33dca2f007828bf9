"""What a candidate's result says for or against what its prompt showed."""

from __future__ import annotations

import math
from collections.abc import Collection

from agent.graph import SearchNode
from agent.judge import UNJUDGED
from kb.credit import skill_subject
from prompts.record import PromptRecord

_FAILED = -0.5  # where the parent was correct, or there was none
_STILL_FAILED = -0.25
_REPAIRED = 0.25  # at least, for making a failure right
_UNUSED = 0.25  # the share of what was shown and not used, where the generator says what it used


def earned(node: SearchNode, parent: SearchNode | None) -> float | None:
    """Signed credit from -1 to 1: the binary logarithm of the speedup over the parent, or over eager where
    there is no correct parent. None where nothing was measured, or the compiler made the candidate.
    """
    if node.compiler_made or node.status in UNJUDGED or node.status == "compiled":
        return None
    broken = parent is not None and not parent.is_root and not parent.correct
    if not node.correct:
        return _STILL_FAILED if broken else _FAILED
    start = parent.fitness if parent is not None and parent.correct else 1.0
    if not node.fitness or not start:
        return _REPAIRED if broken else None
    gain = max(-1.0, min(1.0, math.log2(node.fitness / start)))
    return max(gain, _REPAIRED) if broken else gain


def shares(prompt: PromptRecord, used: Collection[str]) -> dict[str, float]:
    """Who gets how much of it, by subject: chunk ids, and skills by `kb.credit.skill_subject`."""
    skills = {skill.chunk_id: skill_subject(skill) for skill in prompt.skills}
    found: dict[str, float] = {}
    for entry in prompt.provenance:
        subject = skills.get(entry.chunk_id, entry.chunk_id)
        found[subject] = 1.0 if not used or entry.chunk_id in used else _UNUSED
    return found
