"""What is weak about a library of documents: found by reading what is stored, changed by nobody."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from sqlmodel import col, select

from ingest.collect import printable
from ingest.loaders.markdown import find_headings, front_matter
from kb import KnowledgeBase
from kb.errors import BlobMissing
from kb.tables import Document, DocumentState, Source
from kb.upkeep.sources import find_source

_STALE = timedelta(days=365)
_DATE_KEYS = ("checked", "checked-on", "checked_on")
_MARKDOWN = ("markdown", "skill")
_FENCED = re.compile(r"^( {0,3})(```+|~~~+).*?^ {0,3}\2[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
# The target of an inline link or image, with or without angle brackets, and of a reference definition.
_LINK = re.compile(r"\]\(\s*(?:<([^>\n]*)>|([^()\s]*(?:\([^()\s]*\)[^()\s]*)*))(?:\s+[\"'(][^\n]*?)?\s*\)")
_REFERENCE = re.compile(r"^ {0,3}\[[^\]\n]+\]:\s*<?([^\s>]+)>?", re.MULTILINE)
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|#|mailto:")


@dataclass(frozen=True)
class Finding:
    """`rule` is front-matter, dead-link, empty-section, duplicate-title, stale-date or bad-date."""

    rule: str
    source: str
    path: str
    line: int
    detail: str


@dataclass(frozen=True)
class _Page:
    document: Document
    source: Source
    text: str

    def finding(self, rule: str, line: int, detail: str) -> Finding:
        return Finding(rule, self.source.name, self.document.path, line, detail)


def lint(kb: KnowledgeBase, source: str | None = None, *, today: date | None = None) -> list[Finding]:
    """Findings of all sources but the curated library, or of one source; by path and line.

    Raises NotFound for a source that does not exist.
    """
    pages = list(_pages(kb, source))
    day = today or date.today()
    findings = [f for rule in _RULES for page in pages for f in rule(page)]
    findings += [f for page in pages for f in _dates(page, day)]
    findings += _dead_links(kb, pages)
    findings += _duplicate_titles(pages)
    return sorted(findings, key=lambda f: (f.source, f.path, f.line, f.rule, f.detail))


def _pages(kb: KnowledgeBase, name: str | None) -> Iterator[_Page]:
    with kb.session() as session:
        wanted = find_source(session, name) if name else None
        rows = session.exec(
            select(Document, Source)
            .join(Source, col(Source.id) == col(Document.source_id))
            .where(Document.state == DocumentState.EMBEDDED)
            .order_by(col(Source.root), col(Document.path))
        ).all()
    for document, source in rows:
        if source.id == wanted.id if wanted else source.key == source.root:
            try:
                yield _Page(document, source, kb.blobs.text(document.text_sha))
            except BlobMissing:
                continue  # `kb check` names it


def _front_matter(page: _Page) -> Iterator[Finding]:
    if page.document.loader not in _MARKDOWN:
        return
    meta, _ = front_matter(page.text.split("\n"))
    if not meta:
        yield page.finding("front-matter", 1, "no front matter")
        return
    missing = [key for key in ("title", "scope") if not meta.get(key) and page.document.loader == "markdown"]
    if missing:
        yield page.finding("front-matter", 1, f"front matter lacks {', '.join(missing)}")


def _empty_sections(page: _Page) -> Iterator[Finding]:
    if page.document.loader not in _MARKDOWN:
        return
    lines = page.text.split("\n")
    _, body = front_matter(lines)
    headings = find_headings(lines, body)
    for (start, level, heading), following in zip(headings, [*headings[1:], None], strict=True):
        end = following[0] if following else len(lines)
        own = [line for line in lines[start + 1 : end] if line.strip(" \t=-")]
        if not own and (following is None or following[1] <= level):  # one with subsections may be bare
            yield page.finding("empty-section", start + 1, f"nothing under {heading!r}")


_RULES: Sequence[Callable[[_Page], Iterator[Finding]]] = (_front_matter, _empty_sections)


def _dates(page: _Page, today: date) -> Iterator[Finding]:
    key = next((k for k in _DATE_KEYS if page.document.meta.get(k)), None)
    if key is None:
        return
    said = str(page.document.meta[key])
    line = next((i for i, text in enumerate(page.text.split("\n"), 1) if text.startswith(f"{key}:")), 1)
    try:
        checked = date.fromisoformat(said[:10])
    except ValueError:
        yield page.finding("bad-date", line, f"{key}: {said!r} is no date")
        return
    if today - checked > _STALE:
        yield page.finding("stale-date", line, f"{key} {checked}, {(today - checked).days} days ago")
    elif checked > today:
        yield page.finding("bad-date", line, f"{key}: {checked} is in the future")


def _dead_links(kb: KnowledgeBase, pages: Sequence[_Page]) -> Iterator[Finding]:
    with kb.session() as session:
        stored = set(session.exec(select(Document.location)))
    for page in pages:
        if page.document.loader in _MARKDOWN:
            for line, target in _links(page.text):
                if not _exists(page.document.location, target, stored):
                    yield page.finding("dead-link", line, f"{target} does not exist")


def _links(text: str) -> Iterator[tuple[int, str]]:
    """(line, target) of links to other files, outside code."""
    visible = _FENCED.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    visible = _CODE.sub(lambda m: " " * len(m.group()), visible)
    for pattern in (_LINK, _REFERENCE):
        for match in pattern.finditer(visible):
            target = next((g for g in match.groups() if g), "")
            path = re.split(r"[#?]", target, maxsplit=1)[0]
            if path and not _ELSEWHERE.match(target):
                yield visible.count("\n", 0, match.start()) + 1, path


def _exists(location: str, target: str, stored: set[str]) -> bool:
    """On disk or, for archives, in the store. A path from the root may mean that of a web site."""
    if target.startswith("/"):
        return True
    archive, mark, inner = location.rpartition("!")
    for name in dict.fromkeys((target, unquote(target))):
        if mark:
            parts: list[str] = []
            for part in (PurePosixPath(inner).parent / name).parts:
                if part == "..":
                    if not parts:
                        break
                    parts.pop()
                else:
                    parts.append(part)
            wanted = f"{archive}!{'/'.join(parts)}"
            if any(place == wanted or place.startswith(wanted + "/") for place in stored):
                return True
        else:
            file = Path(location).parent / name
            try:
                if file.exists() or printable(str(file)) in stored:
                    return True
            except OSError:  # a name that no file can have
                continue
    return False


def _duplicate_titles(pages: Sequence[_Page]) -> Iterator[Finding]:
    titled: dict[tuple[int, str], list[_Page]] = defaultdict(list)
    for page in pages:
        titled[page.document.source_id, " ".join(page.document.title.lower().split())].append(page)
    for (_, title), same in titled.items():
        for page in same[1:] if title else ():
            first = same[0].document.path
            yield page.finding("duplicate-title", 1, f"{page.document.title!r} is the title of {first}, too")
