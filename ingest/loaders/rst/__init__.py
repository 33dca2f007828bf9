"""reStructuredText, Sphinx's directives included; see `scanner` for how, and why not with docutils."""

from __future__ import annotations

import re
from pathlib import Path

from ingest.document import FileContent, LoadedDocument, LoadedSection, Loader
from ingest.loaders.rst import inline, sphinx
from ingest.loaders.rst.includes import Includes, Refused, SourceFolder, named_files
from ingest.loaders.rst.lines import numbered, strip_blank
from ingest.loaders.rst.scanner import Scanner

_SUFFIXES = {".rst", ".rest"}
_MAYBE = {".txt", ".inc", ".in", ""}  # Sphinx projects keep pieces of reStructuredText in such files
_DIRECTIVE = re.compile(r"^ *\.\. (?:[\w+-]+:)*[\w+-]+::|^\.\. _[^:\n]+:\s*$|:[a-z]+:`[^`\n]+`", re.MULTILINE)


class RstLoader(Loader):
    """One section per heading and per documented API object; tables as Markdown, code between fences."""

    name = "rst"
    version = 3
    priority = 45

    def accepts(self, file: FileContent) -> bool:
        if file.suffix in _SUFFIXES:
            return True
        return file.suffix in _MAYBE and _DIRECTIVE.search(file.head) is not None

    def load(self, file: FileContent) -> LoadedDocument:
        folder = SourceFolder(file.path, file.root or file.path)
        definitions = sphinx.definitions(folder)
        definitions.add(file.text)
        scanner = Scanner(definitions, Includes(folder))
        scanner.scan(numbered(file.text))
        notes = [*file.notes, *scanner.files.problems]
        if scanner.unknown:
            what = ", ".join(f"{name} ({n})" for name, n in sorted(scanner.unknown.items()))
            notes.append(f"directives not understood, their text kept: {what}")
        sections = []
        for section in scanner.sections:
            lines = strip_blank(section.lines)
            if lines:
                sections.append(
                    LoadedSection(
                        section.heading_path,
                        min(line.first for line in lines),
                        max(line.last for line in lines),
                        text="\n".join(line.text for line in lines),
                        origins=tuple((line.first, line.last) for line in lines),
                    )
                )
        return LoadedDocument(
            title=scanner.title or file.path.stem, sections=sections, notes=notes, plain=inline.plain
        )

    def dependencies(self, path: Path, root: Path) -> list[Path]:
        folder = SourceFolder(path, root)
        try:
            return sorted({*named_files(folder.read(path), path, folder), *sphinx.files(folder)})
        except Refused:
            return []
