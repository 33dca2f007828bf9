"""Distilled skills on disk (`<home>/skills/`, the Agent Skills layout) and in the knowledge base."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlmodel import col, select

from agent.distil.evidence import Record, merged
from agent.distil.patterns import Composition, Pattern, language_of, spec_of
from agent.distil.sizes import problem_identity
from agent.distil.writing import (
    EVIDENCE,
    KERNEL,
    PROBLEM,
    PROVENANCE,
    SPEC,
    Origin,
    provenance,
    skill_md,
    toml,
)
from agent.errors import SkillNotStored
from agent.recipe.genome import Gene, Genome
from agent.recipe.library import names as curated_names
from harness.target import get_target
from kb.skill_states import is_win
from kb.tables import LOCAL_ONLY, SkillEvidence

if TYPE_CHECKING:
    from harness.worker.model import ProblemFacts
    from kb import KnowledgeBase

FOLDERS = {False: "skills", True: "skills-local-only"}  # below the home, by whether they must stay here


@dataclass(frozen=True)
class Found:
    """What the admission test found: measurements, conditions, and the right values of each parameter."""

    records: list[Record]
    applies: dict[str, Any]
    tried: dict[str, list[int]]


class SkillFolders:
    """Writes distilled skills and keeps the knowledge base in line with them."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self._kb = kb

    def _folder(self, local_only: bool) -> Path:
        return self._kb.home / FOLDERS[local_only]

    def twin(self, pattern: Pattern) -> str | None:
        """The skill that says the same as a pattern already; None if there is none.

        A composition of one curated skill is that skill, with other parameters of its own.
        """
        if isinstance(pattern, Composition) and len(pattern.genome.skills()) == 1:
            (only,) = pattern.genome.skills()
            if only in curated_names() and any(s.name == only for s in self._kb.skills()):
                return only
        same = (s.name for s in self._kb.skills() if s.spec.get("fingerprint") == pattern.fingerprint)
        return next(same, None)

    def strengthen(self, name: str, records: Sequence[Record], origin: str) -> None:
        """Add measurements to a skill's evidence; those of the same problem, size and target give way."""
        skill = self._kb.skill(name)
        if skill.root.parent == self._folder(skill.local_only).resolve():
            path = skill.root / EVIDENCE
            _write_json(path, merged(json.loads(path.read_text(encoding="utf-8")), list(records)))
            self._ingest(skill.root, local_only=skill.local_only)
            return
        with self._kb.session() as session:  # the curated library is not ours to write
            rows = session.exec(
                select(SkillEvidence).where(
                    col(SkillEvidence.skill_id) == skill.skill_id, col(SkillEvidence.origin) == origin
                )
            ).all()
            for row in rows:
                session.delete(row)
            for record in merged([row.record for row in rows], list(records)):
                version = int(skill.version)
                session.add(
                    SkillEvidence(
                        skill_id=skill.skill_id, skill_version=version, origin=origin, record=record
                    )
                )
            session.commit()

    def add(self, pattern: Pattern, origin: Origin, found: Found) -> str:
        """Write a new skill and store it. Returns its name. Raises SkillNotStored, leaving nothing."""
        language = language_of(origin.source)
        name = self._name(origin.run.info.problem, language)
        root = self._folder(origin.step.private) / name
        root.mkdir(parents=True)
        node = origin.step.node
        spec = {
            "version": "1.0",
            "kind": pattern.kind,
            "fingerprint": pattern.fingerprint,
            "applies": found.applies,
            "origin": {
                "run": origin.run.info.run_id,
                "node": node.node_id,
                "problem": origin.run.info.problem,
                "identity": problem_identity(origin.run.problem_source),
            },
            **spec_of(pattern, found.tried),
        }
        texts = {
            "SKILL.md": skill_md(name, language, origin, spec),
            SPEC: toml(spec),
            KERNEL: origin.source,
            PROBLEM: origin.run.problem_source,
        }
        for file, text in texts.items():
            (root / file).write_text(text, encoding="utf-8", errors="replace")
        _write_json(root / EVIDENCE, found.records)
        _write_json(root / PROVENANCE, provenance(origin))
        try:
            self._ingest(root, local_only=origin.step.private)
        except BaseException:
            _remove(root)
            raise
        return name

    def _ingest(self, root: Path, *, local_only: bool) -> None:
        from ingest.skills import ingest_distilled

        report = ingest_distilled(self._kb, root.parent, LOCAL_ONLY if local_only else "shared")
        for failure in report.failed:
            if Path(failure["path"]).parent == root.resolve():
                raise SkillNotStored(f"the skill could not be stored: {failure['error']}", f"see {root}")

    def _name(self, problem: str, language: str) -> str:
        words = [w for w in re.split(r"[^a-z0-9]+", f"{problem} {language}".lower()) if w]
        base = "-".join(words)[:56].strip("-") or "kernel"
        taken = {s.name for s in self._kb.skills()}
        number, name = 1, base
        while name in taken or any((self._folder(private) / name).exists() for private in FOLDERS):
            number += 1
            name = f"{base}-{number}"
        return name


def applicability(facts: ProblemFacts, records: Sequence[Record], target: str) -> dict[str, Any]:
    """Under which conditions the pattern was seen to win: operators, dtypes, range of each input's sizes,
    target and device.
    """
    wins = [r for r in records if is_win(r)]
    ranges = []
    for index in range(len(facts.inputs)):
        shapes = [r["shapes"][index] for r in wins if len(r["shapes"]) > index]
        ranges.append({"min": [min(d) for d in zip(*shapes, strict=True)],
                       "max": [max(d) for d in zip(*shapes, strict=True)]})  # fmt: skip
    return {
        "operators": operators(facts),
        "dtypes": sorted({spec.dtype for spec in facts.inputs}),
        "target": target,
        "architecture": get_target(target).architecture,
        "devices": sorted({str(r["device"]) for r in wins if r.get("device")}),
        "inputs": ranges,
    }


def operators(facts: ProblemFacts) -> list[str]:
    """The reference's ATen operators in order of first use; what its META names where it was not traced."""
    from prompts.questions import operators as named

    return named(facts.to_json()) or list(facts.ops)


def genome_of(spec: Mapping[str, Any]) -> Genome:
    """The genome in a skill.toml, where a region without a skill has an empty name."""
    stored = spec["genome"]
    genes = {k: Gene(g["skill"] or None, dict(g.get("params", {}))) for k, g in stored["genes"].items()}
    return Genome(genes, tuple(stored["cuts"]), stored["flags"])


def _write_json(path: Path, value: Any) -> None:
    partial = path.with_name(path.name + ".part")
    partial.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def _remove(root: Path) -> None:
    for file in root.iterdir():
        file.unlink()
    root.rmdir()
