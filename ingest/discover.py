"""Finding files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ingest.scope_files import SOURCE_FILE

_SKIPPED_FOLDERS = {
    ".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".tox", ".idea", ".vscode", ".ipynb_checkpoints",
    "_shared",  # templates that several skills use; they belong to those skills
}  # fmt: skip
_SKIPPED_SUFFIXES = {".pyc", ".pyo", ".o", ".a", ".so", ".swp"}


def walk(
    root: Path, unlisted: list[Path] | None = None, enter: Callable[[Path], bool] = lambda _: True
) -> Iterator[Path]:
    """All files below `root` in a fixed order; every folder once, so that links cannot make a loop.

    Folders that cannot be listed are left out, and appended to `unlisted` where it is given; `enter` is asked
    about every other one before its files.
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
        if not enter(folder):
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
