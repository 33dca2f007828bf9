"""C, C++, CUDA, HIP and OpenCL sources: one section per function or type, found by scanning braces.

A parser would need the headers and the macros of every vendor. Where nothing is recognised, the file is cut
by lines and a note says so.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

from ingest.document import FileContent, LoadedDocument, LoadedSection, Loader
from ingest.loaders.markdown import SEPARATOR

_SUFFIXES = {".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".hip", ".cl", ".inl"}
_KERNEL = re.compile(
    r"\b(__global__|__kernel|kernel\s+void)\b|#pragma\s+omp\s+(parallel|simd|target)|_mm\d*_"
)
_TRANSPARENT = re.compile(r"\b(namespace\b[^;{}()]*|extern\s*\"[^\"]*\"\s*)$")
_TYPE = re.compile(r"\b(class|struct|union|enum)\s+(?:class\s+)?(?:\[\[[^\]]*\]\]\s*)?([A-Za-z_]\w*)[^;()]*$")
_FUNCTION = re.compile(r"([A-Za-z_~]\w*(?:::~?[A-Za-z_]\w*)*|operator\s*[^\s(]+)\s*\(")
_NOT_FUNCTIONS = {
    "if", "for", "while", "switch", "catch", "return", "sizeof", "alignas", "decltype", "defined",
    "__attribute__", "__launch_bounds__", "__declspec", "requires", "noexcept",
}  # fmt: skip


class CLoader(Loader):
    """C, C++, CUDA, HIP and OpenCL sources; kind `kernel` where a kernel is defined."""

    name = "c"
    version = 1
    priority = 40

    def accepts(self, file: FileContent) -> bool:
        return file.suffix in _SUFFIXES

    def load(self, file: FileContent) -> LoadedDocument:
        title = file.path.name
        count = len(file.text.split("\n"))
        notes = list(file.notes)
        definitions = list(_definitions(blank_out(file.text)))
        sections: list[LoadedSection] = []
        after = 1
        for start, end, heading in definitions:
            first = max(after, start)
            if first > after:
                sections.append(LoadedSection(title, after, first - 1))
            sections.append(LoadedSection(f"{title}{SEPARATOR}{heading}", first, end))
            after = end + 1
        if after <= count:
            sections.append(LoadedSection(title, after, count))
        if not definitions and "{" in file.text:
            notes.append("no definitions recognised; cut by lines")
        kind = "kernel" if _KERNEL.search(file.text) else "document"
        return LoadedDocument(
            title=title, sections=sections, kind=kind, meta={"language": file.suffix[1:]}, notes=notes
        )


def blank_out(text: str) -> str:
    """The text with comments, literals and preprocessor lines turned into blanks of the same length."""
    pattern = re.compile(
        r"""//[^\n]*|/\*.*?\*/|R"([^\s()\\]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'"""
        r"""|^[ \t]*\#(?:\\\n|[^\n])*""",
        re.DOTALL | re.MULTILINE,
    )
    # `extern "C"` must survive as what it is: a brace that opens no function.
    return pattern.sub(lambda m: '"C"' if m[0] == '"C"' else re.sub(r"[^\n]", " ", m[0]), text)


def _definitions(code: str) -> Iterator[tuple[int, int, str]]:
    """(first line, last line, heading) of the outermost functions and types, in order."""
    depth = 0  # inside a definition; namespaces and extern "C" do not count
    stack: list[bool] = []  # for every open brace: does it count?
    begin = 0  # where the text of the current declaration starts
    opened: tuple[int, str] | None = None
    ends = [match.start() for match in re.finditer(r"\n", code)]

    def line_of(position: int) -> int:
        return bisect_left(ends, position) + 1

    for match in re.finditer(r"[{};]", code):
        char, at = match[0], match.start()
        if char == "{":
            # Inside a definition nobody asks what the brace belongs to; slicing there would cost a square.
            declaration = code[begin:at] if depth == 0 else ""
            counts = depth > 0 or not _TRANSPARENT.search(declaration.rstrip())
            if counts and depth == 0:
                heading = _heading_of(declaration)
                lead = len(declaration) - len(declaration.lstrip())
                opened = (line_of(begin + lead), heading) if heading else None
            stack.append(counts)
            depth += counts
            begin = at + 1 if not counts else begin
        elif char == "}":
            if not stack:
                return
            counts = stack.pop()
            depth -= counts
            if depth == 0:
                begin = at + 1
                if counts and opened is not None:
                    yield opened[0], line_of(at), opened[1]
                    opened = None
        elif depth == 0:
            begin = at + 1


def _heading_of(declaration: str) -> str | None:
    text = " ".join(declaration.split())
    kind = _TYPE.search(text)
    if kind:
        return f"{kind[1]} {kind[2]}"
    for found in _FUNCTION.finditer(text):
        if found[1] not in _NOT_FUNCTIONS:
            return f"{found[1]}()"
    return None
