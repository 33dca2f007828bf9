"""Skills: their rows, versions and evidence, and how retrieval hands them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select
from sqlmodel import col
from sqlmodel import select as select_rows

from kb import credit
from kb import scope as scopes
from kb.errors import NotFound, SkillInvalid
from kb.fusion import CREDIT
from kb.questions import storable
from kb.records import Hit, SkillRecord
from kb.tables import LOCAL_ONLY, Chunk, Document, Skill, SkillEvidence, Source, now

if TYPE_CHECKING:
    from sqlmodel import Session

    from kb.base import KnowledgeBase

_EVIDENCE_ORIGIN = "library"


@dataclass(frozen=True)
class NewSkill:
    """A skill's folder as read. `digest` covers everything that makes the skill behave as it does."""

    name: str
    description: str
    scope: str
    language: str
    declared_version: str
    root: Path
    digest: str
    spec: dict[str, Any] = field(default_factory=dict)
    evidence: tuple[dict[str, Any], ...] = ()


def previous_state(session: Session, source_id: int, path: str) -> dict[str, Any] | None:
    """What must outlive a re-ingest: version, digest, creation and evidence that runs have added."""
    skill = session.exec(
        select_rows(Skill)
        .join(Document, col(Document.id) == col(Skill.document_id))
        .where(Document.source_id == source_id, Document.path == path)
    ).first()
    if skill is None:
        return None
    earned = session.exec(
        select_rows(SkillEvidence).where(
            col(SkillEvidence.skill_id) == skill.id, col(SkillEvidence.origin) != _EVIDENCE_ORIGIN
        )
    ).all()
    return {
        "version": skill.version,
        "digest": skill.digest,
        "created": skill.created,
        "earned": [e.model_dump(exclude={"id"}) for e in earned],
    }


def remove_skills(session: Session, document_ids: Sequence[int]) -> None:
    """Remove the skills of documents."""
    connection = session.connection()
    held = select(col(Skill.id)).where(col(Skill.document_id).in_(document_ids))
    connection.execute(delete(SkillEvidence).where(col(SkillEvidence.skill_id).in_(held)))
    connection.execute(delete(Skill).where(col(Skill.document_id).in_(document_ids)))


def write_skill(session: Session, document_id: int, skill: NewSkill, previous: dict[str, Any] | None) -> None:
    """Store the skill of a document that has none. The version grows when the digest is not the `previous`.

    Raises SkillInvalid when another document already has a skill of this name.
    """
    taken = (
        session.connection()
        .execute(
            select(col(Document.location))
            .join(Skill, col(Skill.document_id) == col(Document.id))
            .where(col(Skill.name) == skill.name)
        )
        .scalar()
    )
    if taken is not None:
        raise SkillInvalid(f"a skill named {skill.name!r} exists already in {taken}", "rename one of the two")
    version = 1
    if previous is not None:
        version = previous["version"] + (previous["digest"] != skill.digest)
    row = Skill(
        id=skill.name,
        name=skill.name,
        document_id=document_id,
        version=version,
        declared_version=skill.declared_version,
        digest=skill.digest,
        description=skill.description,
        scope=skill.scope,
        language=skill.language,
        root=str(skill.root),
        spec=skill.spec,
        created=previous["created"] if previous else now(),
    )
    session.add(row)
    session.flush()
    for record in skill.evidence:
        session.add(
            SkillEvidence(skill_id=row.id, skill_version=version, origin=_EVIDENCE_ORIGIN, record=record)
        )
    for earned in (previous or {}).get("earned", []):
        session.add(SkillEvidence(**earned))
    session.flush()


def load_skills(kb: KnowledgeBase, target: str | None = None) -> list[SkillRecord]:
    """All skills that `target` may see, by name."""
    with kb.session() as session:
        rows = session.exec(select_rows(Skill).order_by(col(Skill.name))).all()
        seen = set(scopes.visible({r.scope for r in rows}, target))
        return [_record(kb, session, row) for row in rows if row.scope in seen]


def load_skill(kb: KnowledgeBase, name: str) -> SkillRecord:
    """Raises NotFound."""
    with kb.session() as session:
        row = session.exec(select_rows(Skill).where(col(Skill.name) == storable(name))).first()
        if row is None:
            raise NotFound(f"no skill named {name!r}", "`kernelevolve skills list` shows what there is")
        return _record(kb, session, row)


def find_skills(kb: KnowledgeBase, text: str, *, target: str | None, k: int = 8) -> list[SkillRecord]:
    """The `k` best skills for `text`, one hit each, ranked as documents are, with their credit as a prior;
    none that was retired (`kb.credit`), or has yet to show, or to show again, that it wins elsewhere than
    where it was found.
    """
    # A skill may have several chunks; enough hits are asked for that k different skills remain.
    hits = kb.query(text, target=target, kinds=("skill",), k=k * 6).hits
    with kb.session() as session:
        rows = session.exec(
            select_rows(col(Chunk.id), Skill)
            .where(col(Chunk.document_id) == col(Skill.document_id))
            .where(col(Chunk.id).in_([h.chunk_id for h in hits]))
        )
        by_chunk = dict(rows.all())
        first: dict[str, tuple[Skill, Hit]] = {}  # the best hit of each
        for hit in hits:
            if hit.chunk_id in by_chunk:
                skill = by_chunk[hit.chunk_id]
                first.setdefault(skill.name, (skill, hit))
        retired = credit.retired(session, [skill for skill, _ in first.values()])
        known = credit.priors(session.connection(), [credit.skill_subject(s) for s, _ in first.values()])
        found = []
        for skill, hit in first.values():
            prior = known.get(credit.skill_subject(skill), 0.0)
            why = {**hit.why, "credit": prior} if prior else hit.why
            found.append((round(hit.score + CREDIT * prior, 6), skill, hit, why))
        usable: list[SkillRecord] = []
        for score, skill, hit, why in sorted(found, key=lambda entry: -entry[0]):
            if skill.name in retired or len(usable) == k:
                continue
            record = _record(kb, session, skill)
            if record.state not in ("candidate", "stale"):
                usable.append(
                    replace(record, score=score, chunk_id=hit.chunk_id, citation=hit.citation, why=why)
                )
    return usable


def _record(kb: KnowledgeBase, session: Session, row: Skill) -> SkillRecord:
    evidence = session.exec(
        select_rows(SkillEvidence)
        .where(col(SkillEvidence.skill_id) == row.id)
        .order_by(col(SkillEvidence.id))
    ).all()
    document = session.get_one(Document, row.document_id)
    source = session.get_one(Source, document.source_id)
    return SkillRecord(
        skill_id=row.id,
        name=row.name,
        version=str(row.version),
        description=row.description,
        target=row.scope,
        language=row.language,
        root=Path(row.root),
        spec=row.spec,
        body=kb.blobs.text(document.text_sha),
        evidence=[{**e.record, "origin": e.origin, "skill_version": e.skill_version} for e in evidence],
        local_only=source.visibility == LOCAL_ONLY,
    )
