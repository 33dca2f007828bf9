"""What the knowledge base hands out: plain records, free of database sessions."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kb.skill_states import State, skill_state


@dataclass(frozen=True)
class Hit:
    """One retrieved passage.

    `meta` is what its document says of itself; `why` names lexical terms, similarity and scope. The JSON of a
    kernel's passage has its `measurements`, too.
    """

    rank: int
    score: float
    kind: str
    source: str
    path: str
    section: str
    page: int | None
    start_line: int
    end_line: int
    text: str
    citation: str
    chunk_id: str
    why: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    local_only: bool = False

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        own = {"measurements": self.measurements} if self.measurements else {}
        return {k: v for k, v in data.items() if k not in ("meta", "local_only")} | own

    @property
    def measurements(self) -> list[dict[str, Any]]:
        """What was measured of a kernel's source, the fastest first; see `ingest.measurements`."""
        found = self.meta.get("measurements")  # front matter may say so, too: anybody's, of any type
        if self.kind != "kernel" or not isinstance(found, list):
            return []
        return [record for record in found if isinstance(record, dict)]


@dataclass(frozen=True)
class SubQuery:
    """One of several questions. `purpose` says in each hit why it was asked; `weight` is its share."""

    text: str
    purpose: str = ""
    weight: float = 1.0


@dataclass(frozen=True)
class SkillRecord:
    """A skill as retrieval returns it.

    `spec` is its parsed `skill.toml` ({} for a textual skill); `root` is its folder. `local_only` as in Hit.
    """

    skill_id: str
    name: str
    version: str
    description: str
    target: str
    language: str
    root: Path
    spec: dict[str, Any]
    body: str
    evidence: list[dict[str, Any]]
    score: float = 0.0
    chunk_id: str = ""
    citation: str = ""
    why: dict[str, Any] = field(default_factory=dict)
    local_only: bool = False

    @property
    def state(self) -> State:
        """Whether it is to be recommended; see `kb.skill_states`."""
        return skill_state(self.spec, self.evidence)
