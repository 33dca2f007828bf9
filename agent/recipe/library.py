"""Curated skills by name, for what a genome inherits from its parent."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable

from agent.recipe.skills import LIBRARY
from kb.records import SkillRecord


def curated(names: Iterable[str]) -> list[SkillRecord]:
    """Records of curated skills, read from their folders; names that the library does not have are
    left out.
    """
    return [record(name) for name in sorted(names) if (LIBRARY / name / "skill.toml").is_file()]


def record(name: str) -> SkillRecord:
    root = LIBRARY / name
    spec = tomllib.loads((root / "skill.toml").read_text(encoding="utf-8"))
    evidence = root / "evidence.json"
    return SkillRecord(
        skill_id=name,
        name=name,
        version=str(spec.get("version", "1.0")),
        description="",
        target="cpu",
        language="cpp",
        root=root,
        spec=spec,
        body="",
        evidence=json.loads(evidence.read_text(encoding="utf-8")) if evidence.is_file() else [],
    )


def names() -> list[str]:
    """All executable skills of the curated library."""
    return sorted(p.parent.name for p in LIBRARY.glob("*/skill.toml"))
