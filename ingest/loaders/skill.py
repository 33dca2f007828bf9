"""A skill: a folder with SKILL.md and, for an executable one, skill.toml, its template and its evidence."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from pathlib import Path
from typing import Any

from ingest.document import FileContent, LoadedDocument, Loader
from ingest.errors import Unreadable
from ingest.loaders.markdown import MarkdownLoader, front_matter, plain
from kb import scope as scopes
from kb.skills import NewSkill

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
EVIDENCE = "evidence.json"
SHARED = "_shared"


class SkillLoader(Loader):
    """`SKILL.md` with the files of its folder."""

    name = "skill"
    version = 1
    priority = 90

    def accepts(self, file: FileContent) -> bool:
        return file.path.name == "SKILL.md"

    def load(self, file: FileContent) -> LoadedDocument:
        document = MarkdownLoader().load(file)
        meta = front_matter(file.text.split("\n"))[0]
        details = meta.get("metadata") or {}
        if not isinstance(details, dict):
            raise Unreadable("front matter: `metadata` must be a mapping")
        name, description = str(meta.get("name", "")), str(meta.get("description", "")).strip()
        root = file.path.parent
        if not _NAME.fullmatch(name) or len(name) > 64:
            raise Unreadable(f"front matter: `name` must be lower-case words joined by dashes, not {name!r}")
        if not description:
            raise Unreadable("front matter: `description` is missing")
        label = scopes.normalise(str(meta.get("scope") or details.get("scope") or ""))
        document.kind = "skill"
        document.scope = label
        document.title = name
        document.meta = meta
        document.skill = NewSkill(
            name=name,
            description=description,
            scope=label,
            language=str(details.get("language", "")),
            declared_version=str(details.get("version", "")),
            root=root,
            digest=folder_digest(root, without=(EVIDENCE,)),
            spec=_spec(root / "skill.toml"),
            evidence=_evidence(root / EVIDENCE),
        )
        return document

    def dependencies(self, path: Path, root: Path) -> list[Path]:  # noqa: ARG002 - the skill's own folder
        return folder_files(path.parent)


def folder_files(root: Path) -> list[Path]:
    """All regular files of a skill and of the `_shared` folder beside it, hidden ones and caches left out."""
    found = [*root.rglob("*"), *(root.parent / SHARED).rglob("*")]
    return sorted(p for p in found if p.is_file() and "__pycache__" not in p.parts and p.name[0] != ".")


def folder_digest(root: Path, without: tuple[str, ...] = ()) -> str:
    """Of the files of a skill, by relative path and content."""
    digest = hashlib.sha256()
    for path in folder_files(root):
        relative = path.relative_to(root if path.is_relative_to(root) else root.parent).as_posix()
        if relative not in without:
            digest.update(f"{relative}\x00{hashlib.sha256(path.read_bytes()).hexdigest()}\x00".encode())
    return digest.hexdigest()


def _spec(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return plain(tomllib.loads(path.read_text(encoding="utf-8")), "skill.toml")
    except ValueError as error:
        raise Unreadable(f"skill.toml: {error}") from error


def _evidence(path: Path) -> tuple[dict[str, Any], ...]:
    """A list of records, or an object whose `records` (or `evidence`) is one."""
    if not path.exists():
        return ()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Unreadable(f"{EVIDENCE}: {error}") from error
    if isinstance(data, dict):
        data = data.get("records", data.get("evidence", [data]))
    if not isinstance(data, list) or not all(isinstance(record, dict) for record in data):
        raise Unreadable(f"{EVIDENCE}: must be a list of objects")
    return tuple(data)
