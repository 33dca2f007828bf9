"""What became of candidates whose prompts showed a passage: signed credit, with decay.

A candidate earns an amount from -1 to 1 (`agent.credit`), and everything that its prompt showed gets it, or a
share. What counts is how much better than everything shown on average something fared: a hard problem speaks
against nothing. Decay is by candidates that were credited since, not by time, so that the same knowledge base
ranks alike tomorrow; what nobody shows any more drifts back to nothing and gets another chance.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlmodel import col, select

from kb.errors import NotFound
from kb.tables import Credit, Skill, now

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlmodel import Session

    from kb.base import KnowledgeBase
    from kb.records import SkillRecord

HALF_LIFE = 400  # credited candidates
_ALL = ""  # the subject that stands for everything shown
_DOUBT = 8.0  # uses that nothing is known by: few uses say little
# A skill is retired when it has been shown so often, has lost so much in all, and so much a time more than
# what is shown on average.
_RETIRE_USES = 8
_RETIRE_TOTAL = -3.0
_RETIRE_MEAN = -0.25


@dataclass(frozen=True)
class Standing:
    """How a passage or a skill fared. `mean` is the credit of a use, `average` that of all uses of anything;
    `prior`, between -1 and 1, is what retrieval makes of it. `retired` says why it is not shown any more.
    """

    uses: int
    wins: int
    losses: int
    mean: float
    average: float
    prior: float
    retired: str = ""


def skill_subject(skill: SkillRecord | Skill) -> str:
    """A skill keeps its credit whichever passage of it is found; a new version starts without."""
    return f"skill:{skill.name}@{skill.version}"


def give(session: Session, shares: Mapping[str, float], amount: float) -> None:
    """Credit `amount` (-1 to 1) to subjects (ids of chunks, `skill_subject`) by their shares (0 to 1)."""
    whole = session.get(Credit, _ALL) or Credit(subject=_ALL)
    clock = whole.clock + 1
    _add(whole, 1.0, amount, clock)
    session.add(whole)
    for subject, share in sorted(shares.items()):
        row = session.get(Credit, subject) or Credit(subject=subject)
        _add(row, share, amount, clock)
        if subject.startswith("skill:") and not row.retired:
            row.retired = _verdict(row, whole)
        session.add(row)


def _add(row: Credit, share: float, amount: float, clock: int) -> None:
    fade = _fade(row, clock)
    row.total = row.total * fade + share * amount
    row.weight = row.weight * fade + share
    row.clock = clock
    row.uses += 1
    row.wins += amount > 0
    row.losses += amount < 0
    row.updated = now()


def _fade(row: Credit, clock: int) -> float:
    return float(0.5 ** ((clock - row.clock) / HALF_LIFE))


def _verdict(row: Credit, whole: Credit) -> str:
    mean, average = row.total / row.weight, whole.total / whole.weight
    if row.uses < _RETIRE_USES or row.total > _RETIRE_TOTAL or mean - average > _RETIRE_MEAN:
        return ""
    return (
        f"retired on {now():%Y-%m-%d}: shown for {row.uses} candidates, {row.losses} worse than what they "
        f"started from and {row.wins} better; credit {mean:+.2f} a time, against {average:+.2f} on average"
    )


def priors(connection: Connection, subjects: Iterable[str]) -> dict[str, float]:
    """The prior of those subjects that have one, from -1 to 1."""
    from kb.database import fetch_all

    rows = fetch_all(
        connection,
        "SELECT subject, total, weight, clock FROM credit WHERE subject IN (SELECT value FROM json_each(?))",
        (json.dumps([_ALL, *subjects]),),
    )
    found = {r[0]: Credit(subject=r[0], total=r[1], weight=r[2], clock=r[3]) for r in rows}
    whole = found.pop(_ALL, None)
    return {s: _prior(row, whole) for s, row in found.items()} if whole else {}


def _prior(row: Credit, whole: Credit) -> float:
    fade = _fade(row, whole.clock)
    advantage = row.total - row.weight * whole.total / whole.weight
    return round(fade * advantage / (fade * row.weight + _DOUBT), 6)


def standing(kb: KnowledgeBase, skill: SkillRecord) -> Standing | None:
    """How a skill fared; None before its first use."""
    with kb.session() as session:
        row, whole = session.get(Credit, skill_subject(skill)), session.get(Credit, _ALL)
    if row is None or whole is None:
        return None
    return Standing(
        row.uses, row.wins, row.losses, row.total / row.weight, whole.total / whole.weight,
        _prior(row, whole), row.retired,
    )  # fmt: skip


def retired(session: Session, skills: Iterable[SkillRecord | Skill]) -> set[str]:
    """The names of those that are retired."""
    by_subject = {skill_subject(skill): skill.name for skill in skills}
    rows = session.exec(
        select(Credit.subject).where(col(Credit.subject).in_(by_subject), col(Credit.retired) != "")
    )
    return {by_subject[subject] for subject in rows}


def restore(kb: KnowledgeBase, skill: SkillRecord) -> None:
    """Let a retired skill be shown again, its record wiped. Raises NotFound for one that is not retired."""
    with kb.session() as session:
        row = session.get(Credit, skill_subject(skill))
        if row is None or not row.retired:
            raise NotFound(
                f"the skill {skill.name!r} is not retired", f"see: kernelevolve skills show {skill.name}"
            )
        session.delete(row)
        session.commit()
