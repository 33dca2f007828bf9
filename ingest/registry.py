"""Loaders, built-in ones and plug-ins alike, through the entry points `kernelevolve.loaders`."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from ingest.document import FileContent, LoadedDocument, Loader
from ingest.errors import IngestError, Unavailable, Unreadable, Unsupported
from ingest.reading import decode

GROUP = "kernelevolve.loaders"
_DATA_URI = re.compile(r"(data:[\w.+-]+/[\w.+-]+(?:;[\w=.+-]+)*;base64,)[A-Za-z0-9+/=_-]{64,}")


@cache
def loaders() -> tuple[Loader, ...]:
    """All loaders, the most specific first. Raises IngestError when a plug-in does not load."""
    found: list[Loader] = []
    for entry in entry_points(group=GROUP):
        try:
            plugin = entry.load()
            found.append(plugin() if isinstance(plugin, type) else plugin)
        except Exception as error:
            raise IngestError(
                f"the loader {entry.name!r} ({entry.value}) does not load: {error}",
                "update or uninstall the package that brings it",
            ) from error
    if not found:
        raise IngestError("no loaders are registered", "reinstall the package")
    return tuple(sorted(found, key=lambda loader: (-loader.priority, loader.name)))


def content_of(path: Path, data: bytes, root: Path | None = None) -> FileContent:
    """The file as its loader wants it: decoded, unless one that reads bytes takes it. Raises Unreadable."""
    raw = FileContent(path, data, "", root=root)
    if any(loader.reads_bytes and loader.accepts(raw) for loader in loaders()):
        return raw
    text, notes = decode(data, path)
    text, cut = _DATA_URI.subn(r"\1…", text)
    if cut:
        notes += (f"{cut} embedded data URIs cut",)
    if not text.strip():
        raise Unreadable("empty file")
    return FileContent(path, data, text, notes, root)


def loader_for(file: FileContent) -> Loader:
    """The first loader that accepts the file. Raises Unsupported."""
    for loader in loaders():
        if loader.accepts(file):
            return loader
    raise Unsupported(f"no loader for {file.suffix or 'this file'}")


def load_file(file: FileContent) -> tuple[Loader, LoadedDocument]:
    """The file as its loader reads it. Raises Unreadable, whatever breaks: one file must not end the run."""
    loader = loader_for(file)
    try:
        return loader, loader.load(file)
    except (Unreadable, RecursionError, MemoryError):
        raise
    except OSError as error:  # of a file that belongs to this one
        raise Unavailable(f"{error.filename or file.path.name}: {error.strerror or error}") from error
    except Exception as error:
        raise Unreadable(f"the {loader.name} loader failed: {type(error).__name__}: {error}") from error
