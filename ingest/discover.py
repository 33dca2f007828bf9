"""Finding files and the scope they belong to."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ingest.errors import SourceFileInvalid
from kb import scope as scopes

SOURCE_FILE = "kernelevolve-source.toml"
_SKIPPED_FOLDERS = {
    ".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".tox", ".idea", ".vscode", ".ipynb_checkpoints",
    "_shared",  # templates that several skills use; they belong to those skills
}  # fmt: skip
_SKIPPED_SUFFIXES = {".pyc", ".pyo", ".o", ".a", ".so", ".swp"}


def walk(root: Path, unlisted: list[Path] | None = None) -> Iterator[Path]:
    """All files below `root` in a fixed order; every folder once, so that links cannot make a loop.

    Folders that cannot be listed are left out, and appended to `unlisted` where it is given.
    Version control, caches and files that begin with a dot are left out. A folder with a SKILL.md is one
    unit: only that file is yielded.
    """
    seen: set[tuple[int, int]] = set()

    def visit(folder: Path) -> Iterator[Path]:
        try:
            stat = folder.stat()
            if (stat.st_dev, stat.st_ino) in seen:
                return
            seen.add((stat.st_dev, stat.st_ino))
            entries = sorted(os.scandir(folder), key=lambda e: e.name)
        except OSError:
            if unlisted is not None:
                unlisted.append(folder)
            return
        if any(e.name == "SKILL.md" for e in entries):
            yield folder / "SKILL.md"
            return
        for entry in entries:
            path = folder / entry.name
            if _is_folder(entry):
                if entry.name not in _SKIPPED_FOLDERS and not entry.name.startswith("."):
                    yield from visit(path)
            elif not _skipped(entry.name, path.suffix.lower()):
                yield path

    yield from visit(root)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """A link that leads nowhere or in a circle counts as a file: reading it reports what is wrong."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _skipped(name: str, suffix: str) -> bool:
    return name.startswith(".") or name == SOURCE_FILE or suffix in _SKIPPED_SUFFIXES


class ScopeFiles:
    """Answers what the nearest `kernelevolve-source.toml` at or above a file says about it."""

    def __init__(self) -> None:
        self._lookup = cache(self._nearest)

    def scope_of(self, path: Path) -> str | None:
        """The label of the longest matching prefix. Raises SourceFileInvalid."""
        found = self._lookup(path.parent)
        if found is None:
            return None
        base, table = found
        relative = path.relative_to(base).as_posix()
        best: str | None = None
        for prefix in table:
            covers = prefix in ("", ".") or relative == prefix or relative.startswith(prefix + "/")
            if covers and (best is None or len(prefix) > len(best)):
                best = prefix
        return table[best] if best is not None else None

    def _nearest(self, folder: Path) -> tuple[Path, dict[str, str]] | None:
        file = folder / SOURCE_FILE
        if file.is_file():
            return folder, _read(file)
        return self._lookup(folder.parent) if folder.parent != folder else None


def _read(file: Path) -> dict[str, str]:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SourceFileInvalid(f"{file}: {error}", "correct the file's syntax") from error
    unknown = sorted(set(data) - {"scopes"})
    table = data.get("scopes", {})
    if unknown or not isinstance(table, dict) or not all(isinstance(v, str) for v in table.values()):
        what = f"unknown key {unknown[0]!r}" if unknown else "[scopes] must map path prefixes to labels"
        raise SourceFileInvalid(f"{file}: {what}", 'for example: [scopes]\\n"docs/rocm" = "amd-hip"')
    return {prefix.strip("/"): scopes.normalise(label) for prefix, label in table.items()}
