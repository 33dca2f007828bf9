"""`kernelevolve-source.toml`: what its author says about the documents beside and below it.

    scope = "nvidia"            # one value for all of them …
    kind = "hardware"
    language = "cuda"
    version = "12.4"
    license = "Apache-2.0"      # SPDX; exports of training data filter by it
    visibility = "local-only"   # the whole folder becomes a source that stays on this machine

    [scopes]                    # … or one by path prefix; [kinds], [languages], [versions]
    "docs/rocm" = "amd-hip"     #   and [licenses] likewise

The nearest such file at or above a document counts, and of its prefixes the longest. What a document says of
itself comes first.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.errors import SourceFileInvalid
from ingest.loaders.markdown import KINDS
from kb import scope as scopes
from kb.tables import LOCAL_ONLY

SOURCE_FILE = "kernelevolve-source.toml"
VISIBILITIES = ("shared", LOCAL_ONLY)
_TABLES = {
    "scopes": "scope", "kinds": "kind", "languages": "language", "versions": "version", "licenses": "license",
}  # fmt: skip
_SPELLINGS = {"licence": "license", "licences": "licenses"}
_KEYS = (*_TABLES.values(), "visibility")


@dataclass(frozen=True)
class Facts:
    """What somebody says about a document from outside it; None where nothing is said."""

    scope: str | None = None
    kind: str | None = None
    language: str | None = None
    version: str | None = None
    license: str | None = None


@dataclass(frozen=True)
class SourceFile:
    """One parsed file. `tables` maps a key to its values by path prefix; "" is everything."""

    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    visibility: str | None = None

    def about(self, relative: str) -> Facts:
        """`relative` is a path as it is cited, below the file's folder."""
        return Facts(**{key: _longest(table, relative) for key, table in self.tables.items()})


class ScopeFiles:
    """Answers what the nearest file at or above a document says about it."""

    def __init__(self) -> None:
        self._found: dict[Path, tuple[str, SourceFile] | None] = {}
        self._unpacked: dict[Path, str] = {}

    def unpacked(self, folder: Path, location: str) -> None:
        """Tell that `folder` holds the members of the archive at `location`."""
        self._unpacked[folder] = location

    def about(self, file: Path, location: str) -> Facts:
        """`location` is where `file` really lies: its own path, or an archive's and `!` and the member's.

        Raises SourceFileInvalid.
        """
        found = self._nearest(file.parent)
        if found is None:
            return Facts()
        base, said = found
        return said.about(location[len(base) :].lstrip("/!"))

    def visibility(self, folder: Path) -> str | None:
        """What the nearest file at or above `folder` says. Raises SourceFileInvalid."""
        found = self._nearest(folder)
        return found[1].visibility if found else None

    def _nearest(self, folder: Path) -> tuple[str, SourceFile] | None:
        """The nearest file and the folder it lies in, as it is cited."""
        if folder not in self._found:
            file = folder / SOURCE_FILE
            archive = self._unpacked.get(folder)
            if file.is_file():
                self._found[folder] = (self._cited(folder), read(file))
            elif archive is not None:
                self._found[folder] = self._nearest(Path(archive).parent)
            else:
                self._found[folder] = self._nearest(folder.parent) if folder.parent != folder else None
        return self._found[folder]

    def _cited(self, folder: Path) -> str:
        for root, location in self._unpacked.items():
            if folder.is_relative_to(root):
                inner = folder.relative_to(root).as_posix()
                return location if inner == "." else f"{location}!{inner}"
        return str(folder)


def read(file: Path) -> SourceFile:
    """Parse one file. Raises SourceFileInvalid with what is wrong."""
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SourceFileInvalid(f"{file}: {error}", "correct the file's syntax") from error
    tables: dict[str, dict[str, str]] = {key: {} for key in _TABLES.values()}
    for said, value in data.items():
        key = _SPELLINGS.get(said, said)
        if key in _TABLES:
            if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
                raise _invalid(file, f"[{key}] must map path prefixes to texts")
            tables[_TABLES[key]] |= {prefix.strip("/"): v for prefix, v in value.items()}
        elif key in _KEYS:
            if not isinstance(value, str):
                raise _invalid(
                    file, f"unknown key {key!r} with such a value", f'write {key} = "…", or [{key}s]'
                )
            if key != "visibility":
                tables[key].setdefault("", value)
        else:
            raise _invalid(file, f"unknown key {key!r}")
    tables["scope"] = {prefix: scopes.normalise(label) for prefix, label in tables["scope"].items()}
    for kind in tables["kind"].values():
        if kind not in KINDS:
            raise _invalid(file, f"unknown kind {kind!r}", f"one of {', '.join(KINDS)}")
    visibility = data.get("visibility")
    if visibility not in (None, *VISIBILITIES):
        raise _invalid(file, f"unknown visibility {visibility!r}", f"one of {', '.join(VISIBILITIES)}")
    return SourceFile({key: table for key, table in tables.items() if table}, visibility)


def _invalid(file: Path, what: str, hint: str = "") -> SourceFileInvalid:
    known = ", ".join((*_KEYS, *(f"[{table}]" for table in _TABLES)))
    return SourceFileInvalid(f"{file}: {what}", hint or f"known are {known}")


def _longest(table: Mapping[str, Any], relative: str) -> Any:
    best: str | None = None
    for prefix in table:
        covers = (
            prefix in ("", ".") or relative == prefix or relative.startswith((prefix + "/", prefix + "!"))
        )
        if covers and (best is None or len(prefix) > len(best)):
            best = prefix
    return table[best] if best is not None else None
