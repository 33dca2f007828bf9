"""The curated documents as the tests read them: front matter by YAML, body as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "kb" / "library"
BRANCHES = ("constraints", "guidance", "hardware")


@dataclass(frozen=True)
class CuratedDocument:
    path: Path
    meta: dict[str, Any]
    body: str

    @property
    def name(self) -> str:
        return self.path.relative_to(LIBRARY).with_suffix("").as_posix()


def read(path: Path) -> CuratedDocument:
    _, front, body = path.read_text(encoding="utf-8").split("---\n", 2)
    return CuratedDocument(path, yaml.safe_load(front), body)


@pytest.fixture(scope="session")
def documents() -> list[CuratedDocument]:
    return [read(path) for branch in BRANCHES for path in sorted((LIBRARY / branch).rglob("*.md"))]


@pytest.fixture(scope="session")
def moves() -> set[str]:
    """The documented vocabulary: first column of the table in constraints/moves.md."""
    return set(
        re.findall(r"^\| `([a-z-]+)` \|", read(LIBRARY / "constraints" / "moves.md").body, re.MULTILINE)
    )
