"""What a loader receives and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from kb.skills import NewSkill


@dataclass(frozen=True)
class FileContent:
    """A file as read. `head` is its first 4 KiB as text, for loaders that recognise a format by content.

    `text` is empty where a loader reads the bytes itself.
    """

    path: Path
    data: bytes
    text: str
    notes: tuple[str, ...] = ()
    root: Path | None = None  # the source's root, a folder or this file; other files are read inside it only

    @property
    def head(self) -> str:
        return self.text[:4096]

    @property
    def suffix(self) -> str:
        return self.path.suffix.lower()


@dataclass(frozen=True)
class LoadedSection:
    """Consecutive lines under one heading, 1-based and inclusive.

    `text` replaces the lines' own text where a loader renders something better to read; `origins` says for
    each line of it from which first and last line of the file it was made, else it cites them all.
    """

    heading_path: str
    start_line: int
    end_line: int
    page: int | None = None
    text: str | None = None
    origins: tuple[tuple[int, int], ...] | None = None


@dataclass
class LoadedDocument:
    """A parsed file. `scope` and `kind` are what the file itself says; None leaves it to the caller.

    `plain` turns a line of its text into words alone: what the embedding model reads of it.
    `text` is what the line numbers refer to where that is not the file's own text. `page_starts` has the
    first line of every page; `needs_ocr` the numbers of the pages that are images of text.
    """

    title: str
    sections: list[LoadedSection]
    kind: str = "document"
    scope: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    skill: NewSkill | None = None
    traces: list[dict[str, Any]] = field(default_factory=list)
    plain: Callable[[str], str] | None = None
    text: str | None = None
    page_starts: list[int] = field(default_factory=list)
    needs_ocr: list[int] = field(default_factory=list)

    def page_of(self, line: int) -> int | None:
        """The page that a line is on; None where there are no pages."""
        return max(1, bisect_right(self.page_starts, line)) if self.page_starts else None


class Loader(ABC):
    """A plug-in of the entry-point group `kernelevolve.loaders`; constructed without arguments."""

    name: ClassVar[str]
    version: ClassVar[int]  # raise it when the same file would give other sections: files are then read again
    priority: ClassVar[int] = 10  # loaders are asked in descending order
    reads_bytes: ClassVar[bool] = False  # the format is no text: `accepts` and `load` look at `data`

    @abstractmethod
    def accepts(self, file: FileContent) -> bool:
        """Whether this loader reads the file; decided by content rather than by name where possible."""

    @abstractmethod
    def load(self, file: FileContent) -> LoadedDocument:
        """Raises Unreadable with one line that a person understands."""

    def dependencies(self, path: Path, root: Path) -> list[Path]:  # noqa: ARG002 - for loaders that have some
        """Other files that the document is made from; a change in one of them has it read again.

        `root` is the source's root, as in `FileContent`.
        """
        return []
