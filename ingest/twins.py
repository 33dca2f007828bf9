"""Notebooks that are kept a second time as text, by jupytext: the same content is indexed once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from ingest.errors import Unreadable
from ingest.loaders import notebook
from ingest.reading import decode, read_bytes

_SUFFIXES = (".md", ".py", ".Rmd", ".qmd", ".jl", ".R", ".cpp")
_HEADER = re.compile(
    r"\A(?:#|//|\s)*---\s*\n(?:(?!\s*(?:#\s*|//\s*)?---\s*$).*\n)*?\W*(?:jupytext|jupyter)\s*:", re.MULTILINE
)
_MARGIN = re.compile(r"^(?:#|//)+ ?")
_DECLARED, _UNDECLARED = 0.8, 0.95  # the share of a text's lines that its notebook must have
_FEWEST_LINES = 5  # fewer agree by chance
_MAX_BYTES = 32_000_000


def find_twins(files: Collection[Path]) -> dict[Path, Path]:
    """Every text twin among `files` with its notebook: same folder and stem, (nearly) the same lines."""
    twins: dict[Path, Path] = {}
    present = set(files)
    for file in files:
        if file.suffix.lower() != ".ipynb":
            continue
        beside = [twin for suffix in _SUFFIXES if (twin := file.with_suffix(suffix)) in present]
        lines = _notebook_lines(file) if beside else None
        if lines:
            twins |= {twin: file for twin in beside if _repeats(twin, lines)}
    return twins


def _notebook_lines(file: Path) -> Counter[str] | None:
    try:
        text, _ = decode(read_bytes(file, _MAX_BYTES), file)
        sources = [cell.source for cell in notebook.cells(notebook.parse(text))]
    except (Unreadable, RecursionError):
        return None  # its own ingestion says why
    return Counter(_plain(line) for source in sources for line in source.split("\n"))


def _repeats(twin: Path, lines: Counter[str]) -> bool:
    try:
        text, _ = decode(read_bytes(twin, _MAX_BYTES), twin)
    except Unreadable:
        return False
    declared = _HEADER.search(text[:4096]) is not None
    own = Counter(plain for line in _body(text).split("\n") if len(plain := _plain(line)) > 1)
    total = sum(own.values())
    if total < _FEWEST_LINES and not declared:
        return False
    shared = sum((own & lines).values())
    return bool(total) and shared >= (_DECLARED if declared else _UNDECLARED) * total


def _body(text: str) -> str:
    """Without front matter, cell marks and the fences around code cells."""
    lines = text.split("\n")
    if _MARGIN.sub("", lines[0]).rstrip() == "---":
        ends = (i for i, line in enumerate(lines[1:], start=1) if _MARGIN.sub("", line).rstrip() == "---")
        lines = lines[next(ends, 0) + 1 :]
    marks = re.compile(r"\s*(?:(?:#|//) ?%%|(?:#|//) ?[+-]($|\s)|```|~~~|\+\+\+|:::)")
    return "\n".join(line for line in lines if not marks.match(line))


def _plain(line: str) -> str:
    """A line as both sides have it: what is a comment in a script is text or a heading in a notebook."""
    return " ".join(line.strip().lstrip("#/ ").split())
