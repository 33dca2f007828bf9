"""C, C++, CUDA, HIP and OpenCL sources: one section per function, type, documented declaration and macro."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ingest.document import FileContent, LoadedDocument, LoadedSection, Loader
from ingest.loaders.c_scan import definitions
from ingest.loaders.markdown import SEPARATOR
from ingest.measurements import attach, tables_beside

_SUFFIXES = {
    ".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".hip", ".cl", ".inl",
    ".tpp", ".ipp", ".txx", ".cppm", ".ixx", ".mm", ".metal",
}  # fmt: skip
# Included pieces of anything; these say that it is C.
_PIECE = re.compile(
    r"^[ \t]*(?:#[ \t]*(?:include|define|undef|ifn?def|if|pragma)\b|template[ \t]*<|//|/\*)", re.MULTILINE
)
_KERNEL = re.compile(
    r"\b(__global__|__kernel|kernel\s+void)\b|#pragma\s+omp\s+(parallel|simd|target)|_mm\d*_"
)
_COMMENT = re.compile(r"^(\s*)(?://[/!]?<?|/\*[*!]?<?|\*/?)(?:\s|$)")
_LANGUAGES = (
    ("metal", {".metal"}, None),
    ("opencl", {".cl"}, re.compile(r"\b__kernel\b")),
    ("hip", {".hip"}, re.compile(r"#\s*include\s*[<\"]hip/|\bhip(?:Launch|Malloc|Stream|Memcpy|DeviceSync)")),
    ("cuda", {".cu", ".cuh"}, re.compile(r"\b__(?:global|device|shared)__\b|#\s*include\s*[<\"]cuda")),
    ("c", {".c"}, None),
)


class CLoader(Loader):
    """Kind `kernel` where a kernel is defined. `meta` holds `language` and the names of the `kernels`; with
    times beside the source also `measurements` and `best_speedup`.

    Each section is the file's own lines, with the comment above them.
    """

    name = "c"
    version = 4
    priority = 40

    def accepts(self, file: FileContent) -> bool:
        return file.suffix in _SUFFIXES or (file.suffix == ".inc" and _PIECE.search(file.text) is not None)

    def load(self, file: FileContent) -> LoadedDocument:
        title = file.path.name
        count = len(file.text.split("\n"))
        notes = list(file.notes)
        found, balanced = definitions(file.text)
        sections: list[LoadedSection] = []
        after = 1
        for d in found:
            if d.first > after:
                sections.append(LoadedSection(title, after, d.first - 1))
            sections.append(LoadedSection(f"{title}{SEPARATOR}{d.heading}", d.first, d.last))
            after = d.last + 1
        if after <= count:
            sections.append(LoadedSection(title, after, count))
        if not balanced:
            notes.append("braces do not balance; some definitions are cut by lines")
        kernels = list(dict.fromkeys(d.entry for d in found if d.entry))
        meta: dict[str, Any] = {"language": _language(file)} | ({"kernels": kernels} if kernels else {})
        attach(meta, file.path, file.root, kernels)
        return LoadedDocument(
            title=title,
            sections=sections,
            kind="kernel" if "measurements" in meta or _KERNEL.search(file.text) else "document",
            meta=meta,
            notes=notes,
            plain=_plain,
        )

    def dependencies(self, path: Path, root: Path) -> list[Path]:
        return tables_beside(path, root)


def _plain(line: str) -> str:
    return _COMMENT.sub(r"\1", line)


def _language(file: FileContent) -> str:
    for language, suffixes, _ in _LANGUAGES:
        if file.suffix in suffixes:
            return language
    by_content = (name for name, _, pattern in _LANGUAGES if pattern and pattern.search(file.text))
    return next(by_content, "c++")
