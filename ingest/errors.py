"""What can go wrong while ingesting. Every message is one line; `hint` says what to do."""

from __future__ import annotations


class IngestError(Exception):
    """Base of everything that `ingest` raises on purpose."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class PathMissing(IngestError):
    """A path that was asked for does not exist."""


class Unreadable(IngestError):
    """One file cannot be ingested; the others continue."""


class Unavailable(Unreadable):
    """A file or folder cannot be read now, which says nothing about its content: what is stored stays."""


class Unsupported(Unreadable):
    """No loader reads this kind of file."""


class SourceFileInvalid(IngestError):
    """A `kernelevolve-source.toml` does not parse or has unknown keys."""


class RunNotIngestible(IngestError):
    """A run that does not exist, or has nothing to learn from."""


def in_one_line(error: Exception) -> str:
    """What is wrong with one file of many, and what to do about it."""
    hint = getattr(error, "hint", "")
    return f"{error}; {hint}" if hint else str(error)
