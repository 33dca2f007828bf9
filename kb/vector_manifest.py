"""What a folder of the vector index holds, and whether its files are as its last writer left them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

# partition -> (generation, count)
Expected = Mapping[str, tuple[int, int]]


@dataclass
class Manifest:
    """What the live folder holds: (generation, count) by partition, and its files as they were left."""

    folder: str
    model: str
    collections: dict[str, list[int]] = field(default_factory=dict)  # partition -> [generation, count]
    files: dict[str, list[int]] = field(default_factory=dict)
    writer: str = ""  # the versions that left it so; empty: from before they were on record

    @property
    def identity(self) -> tuple[str, dict[str, list[int]]]:
        return self.folder, self.collections

    def untouched(self, root: Path) -> str | None:
        """None, or why the files below `root` are not as they were left."""
        if self.files == fingerprint(root / self.folder):
            return None
        if self.writer != writer():  # each leaves, and may change on reading, files of its own
            return "was made by another version"
        return "was damaged or changed by something else"

    def matches(self, model: str, expected: Expected) -> bool:
        held = {p: (g, n) for p, (g, n) in self.collections.items() if n}
        return self.model == model and held == {p: gn for p, gn in expected.items() if gn[1]}


def writer() -> str:
    """The versions of this package and of Chroma."""
    return " ".join(f"{name} {version(name)}" for name in ("kernelevolve", "chromadb"))


def fingerprint(folder: Path) -> dict[str, list[int]]:
    """Size and time of the graph files; of Chroma's own database, which it touches on opening, the size."""
    found: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*/*.bin")):
        stat = path.stat()
        found[str(path.relative_to(folder))] = [stat.st_size, stat.st_mtime_ns]
    database = folder / "chroma.sqlite3"
    if database.is_file():
        with database.open("rb") as file:
            header = file.read(16)
        found["chroma.sqlite3"] = [int(header == b"SQLite format 3\x00"), database.stat().st_size]
    return found
