"""MLIR's TableGen files: the operations, types and attributes that they describe, as API pages.

What an operation of Triton's or TT-MLIR's dialects means is written there and nowhere else.
"""

from __future__ import annotations

import re

from ingest.document import FileContent, LoadedDocument, LoadedSection, Loader

_RECORD = re.compile(r"(def|defm|class|multiclass)\s+([A-Za-z_]\w*)(.*)")
_MNEMONIC = re.compile(r'<\s*"([\w.]+)"')
_SUMMARY = re.compile(r'^\s*let\s+summary\s*=\s*"((?:[^"\\]|\\.)*)"', re.MULTILINE)
_DIALECT = re.compile(r'^\s*let\s+name\s*=\s*"([\w.]+)"', re.MULTILINE)


class TableGenLoader(Loader):
    """One section per record at the margin, with the comment above it; the mnemonic beside its name."""

    name = "tablegen"
    version = 1
    priority = 40

    def accepts(self, file: FileContent) -> bool:
        return file.suffix == ".td"

    def load(self, file: FileContent) -> LoadedDocument:
        lines = file.text.split("\n")
        title = file.path.name
        starts = _starts(lines)
        sections = []
        if not starts or starts[0][0] > 0:
            sections.append(LoadedSection(title, 1, starts[0][0] if starts else len(lines)))
        for (start, name), (end, _) in zip(starts, [*starts, (len(lines), "")][1:], strict=True):
            text = "\n".join(lines[start:end])
            summary = _SUMMARY.search(text)
            heading = f"{name}: {summary[1]}" if summary else name
            sections.append(LoadedSection(heading, start + 1, end))
        dialects = _DIALECT.findall(file.text)
        meta = {"language": "tablegen"} | ({"dialect": dialects[0]} if dialects else {})
        notes = list(file.notes) if starts else [*file.notes, "no records recognised; cut by lines"]
        return LoadedDocument(title=title, sections=sections, meta=meta, notes=notes)


def _starts(lines: list[str]) -> list[tuple[int, str]]:
    """(index of the first line, name with its mnemonic) of each record; not inside a description."""
    found = []
    quoted = False
    for i, line in enumerate(lines):
        record = None if quoted else _RECORD.match(line)
        if record:
            header = " ".join(lines[i : i + 3])
            mnemonic = _MNEMONIC.search(header.partition("{")[0]) if record[1] == "def" else None
            first = i
            while first > 0 and lines[first - 1].startswith("//"):
                first -= 1
            found.append((first, f"{record[2]} ({mnemonic[1]})" if mnemonic else record[2]))
        opened, closed = line.rfind("[{"), line.rfind("}]")
        quoted = opened > closed or (quoted and closed < 0)
    return found
