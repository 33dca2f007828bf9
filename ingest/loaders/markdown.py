"""Markdown with optional YAML front matter: one section per heading; fences are never taken for headings."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime, time
from itertools import count
from typing import Any

import yaml

from ingest.document import FileContent, LoadedDocument, LoadedSection, Loader
from ingest.errors import Unreadable
from kb import scope as scopes

SEPARATOR = " › "
KINDS = ("constraint", "guidance", "hardware", "skill", "document", "kernel", "trace")
_MAX_VALUES = 5000
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
# Addresses have no blanks, and something that tells them from the arguments of a call.
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\([^\s()]*[./:#][^\s()]*(?:\s+\"[^\"]*\")?\)")
_TAG = re.compile(
    r"</?(?:table|thead|tbody|tr|th|td|br|hr|p|div|span|a|img|b|i|em|strong|code|pre|sub|sup|ul|ol|li|details"
    r"|summary|center|figure)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
_FENCE = re.compile(r" {0,3}(```+|~~~+)")


class MarkdownLoader(Loader):
    """Markdown files, with or without YAML front matter."""

    name = "markdown"
    version = 2
    priority = 50

    def accepts(self, file: FileContent) -> bool:
        return file.suffix in (".md", ".markdown", ".mdx", ".rmd", ".qmd")

    def load(self, file: FileContent) -> LoadedDocument:
        lines = file.text.split("\n")
        meta, body = front_matter(lines)
        headings = find_headings(lines, body)
        sections = sections_of(headings, body, lines)
        title = str(meta.get("title") or (headings[0][2] if headings else "") or file.path.stem)
        kind = str(meta.get("kind") or "document")
        if kind not in KINDS:
            raise Unreadable(f"front matter: unknown kind {kind!r}", f"one of {', '.join(KINDS)}")
        label = meta.get("scope")
        return LoadedDocument(
            title=title,
            sections=sections,
            kind=kind,
            scope=scopes.normalise(str(label)) if label else None,
            meta=meta,
            notes=list(file.notes),
            plain=plain_line,
        )


def plain_line(text: str) -> str:
    """A line without addresses of links and images and without HTML tags, which say nothing by themselves."""
    return _TAG.sub(" ", _LINK.sub(r"\1", text))


def front_matter(lines: Sequence[str]) -> tuple[dict[str, Any], int]:
    """The YAML between two `---` lines at the very top, and the index of the first line after it.

    Raises Unreadable when there is front matter that is not a YAML mapping.
    """
    if not lines or lines[0].rstrip() != "---":
        return {}, 0
    end = next((i for i, line in enumerate(lines[1:], start=1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        return {}, 0  # a thematic break, not front matter
    try:
        data = yaml.safe_load("\n".join(lines[1:end]))
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" (line {where.line + 2})" if where is not None else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise Unreadable(f"front matter is not valid YAML{line}: {problem}") from error
    except ValueError as error:  # a date that there is not, a number of thousands of digits
        raise Unreadable(f"front matter: {error}") from error
    if data is None:
        return {}, end + 1
    if not isinstance(data, dict):
        raise Unreadable("front matter must be a mapping of keys to values")
    return plain(data, "front matter"), end + 1


def plain(data: dict[Any, Any], what: str) -> dict[str, Any]:
    """What YAML or TOML gave, as JSON can hold it: dates and times become ISO text.

    Raises Unreadable for values of other types, and for too many of them: aliases multiply without bound.
    """
    budget = count(1)

    def convert(value: Any) -> Any:
        if next(budget) > _MAX_VALUES:
            raise Unreadable(f"{what} has more than {_MAX_VALUES} values")
        if isinstance(value, date | datetime | time):
            return value.isoformat()
        if isinstance(value, dict):
            return {str(k): convert(v) for k, v in value.items()}
        if isinstance(value, list | tuple | set):
            return [convert(v) for v in value]
        if isinstance(value, str):
            return value.encode("utf-8", "replace").decode("utf-8")  # escapes can make lone surrogates
        if isinstance(value, bool | int | None) or (isinstance(value, float) and math.isfinite(value)):
            return value
        shown = value if isinstance(value, float) else f"binary ({type(value).__name__})"
        raise Unreadable(f"{what}: a value cannot be stored: {shown}")

    return {str(k): convert(v) for k, v in data.items()}


def find_headings(lines: Sequence[str], first: int) -> list[tuple[int, int, str]]:
    """(index of the heading's first line, level, text) for ATX and setext headings outside fences."""
    found: list[tuple[int, int, str]] = []
    fence = ""
    for i in range(first, len(lines)):
        line = lines[i]
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip(" `~"):
                fence = ""
            continue
        if mark:
            fence = mark[1]
            continue
        atx = _ATX.match(line)
        if atx and (atx[2] or "").strip():
            found.append((i, len(atx[1]), _clean(atx[2])))
            continue
        under = _SETEXT.match(line)
        above = lines[i - 1] if i > first else ""
        single = i - 2 < first or not lines[i - 2].strip()  # a paragraph of one line, not a list or a table
        if (
            under
            and single
            and above.strip()
            and not above.startswith(("    ", "\t", ">", "|", "-", "*", "#"))
        ):
            found.append((i - 1, 1 if under[1][0] == "=" else 2, _clean(above)))
    return found


def _clean(heading: str) -> str:
    """Without links, emphasis, code marks and explicit anchors."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"\s*\{#[^}]*\}\s*$", "", text)
    return re.sub(r"[`*]+", "", text).strip()


def sections_of(
    headings: Sequence[tuple[int, int, str]], first: int, lines: Sequence[str]
) -> list[LoadedSection]:
    """Sections from `first` to the end; each begins with its heading's line.

    A heading directly above a deeper one has nothing to say alone: it leads that one's section, too.
    """
    sections: list[LoadedSection] = []
    starts = [h[0] for h in headings]
    preamble_end = starts[0] if starts else len(lines)
    if any(line.strip() for line in lines[first:preamble_end]):
        sections.append(LoadedSection("", first + 1, max(preamble_end, first + 1)))
    path: list[tuple[int, str]] = []
    begin: int | None = None  # where the headings above began, when nothing stands between
    for number, (start, level, text) in enumerate(headings):
        path = [p for p in path if p[0] < level] + [(level, text)]
        end = starts[number + 1] if number + 1 < len(starts) else len(lines)
        begin = start if begin is None else begin
        deeper = number + 1 < len(headings) and headings[number + 1][1] > level
        if deeper and all(_is_rule(line) for line in lines[start + 1 : end]):
            continue
        sections.append(LoadedSection(SEPARATOR.join(t for _, t in path), begin + 1, max(end, start + 1)))
        begin = None
    return sections


def _is_rule(line: str) -> bool:
    """Whether a line is blank, or the rule below a heading."""
    return set(line.strip()) in (set(), {"="}, {"-"})
