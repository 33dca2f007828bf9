"""Loaders, built-in ones and plug-ins alike, through the entry points `kernelevolve.loaders`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from ingest.document import FileContent, Loader
from ingest.errors import IngestError, Unsupported

GROUP = "kernelevolve.loaders"


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


def loader_for(file: FileContent) -> Loader:
    """The first loader that accepts the file. Raises Unsupported."""
    for loader in loaders():
        if loader.accepts(file):
            return loader
    raise Unsupported(f"no loader for {file.suffix or 'this file'}")
