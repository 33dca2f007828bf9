"""A section scanner for reStructuredText: no document tree, no failure.

docutils stops at what it does not know, and Sphinx documents are full of that; its import alone costs more
than reading a hundred files. Here every construct is a run of lines with a margin: known ones are rendered,
of unknown ones the text is kept. Prose stays as the author wrote it, roles included, so that a passage can
be found in its file again; `inline.plain` gives the embedding model the words alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ingest.loaders.rst import inline, tables
from ingest.loaders.rst.includes import Includes
from ingest.loaders.rst.lines import Line, dedent, fenced, indented_after, strip_blank

SEPARATOR = " › "
_RULE = re.compile(r"([!-/:-@\[-`{-~])\1+$")
_LIST_ITEM = re.compile(r"([*+•‣⁃-]|\(?(?:\d+|[A-Za-z]|#|[ivxlcIVXLC]+)[.)])(\s+)")
_TARGET = re.compile(r"\.\. +_(?:[^:\\`]|\\.|`[^`]*`)+:(?: +(\S.*))?$")
_SUBSTITUTION = re.compile(r"\.\. +\|[^|]+\| +[\w-]+::")
_NOTE = re.compile(r"\.\. +\[([^\]]+)\]\s?(.*)$")
_DIRECTIVE = re.compile(r"\.\. ?((?:[A-Za-z][\w+-]*:)*[A-Za-z][\w+.-]*) ?::\s*(.*)$")
_OPTION = re.compile(r"\s*:([\w-]+):(?:\s+(.*))?$")
_META_FIELD = re.compile(r"\s*:([\w-]+(?: [\w=-]+)?):(?:\s+(.*))?$")
_MAX_DEPTH = 40  # deeper than any document; what is below stays as it is
_PAGE_FIELD = re.compile(r":(orphan|nosearch|no-search|tocdepth|nocomments|allow_comments):.*$")


@dataclass
class Section:
    """A heading with what stands under it."""

    heading_path: str
    lines: list[Line] = field(default_factory=list)
    head: int = 0  # the number of lines that make the heading

    @property
    def bare(self) -> bool:
        """Whether it has a heading and nothing under it."""
        return 0 < self.head >= len(self.lines)


@dataclass
class Directive:
    """`.. name:: argument`. `lead` are lines that follow without a blank one and are no options."""

    name: str
    argument: str
    lead: list[Line]
    options: dict[str, str]
    content: list[Line]
    place: Line  # its first line
    last: int  # its last line of the file
    prefix: str  # the indentation it stands in

    @property
    def body(self) -> list[Line]:
        """All of its text but the argument, dedented."""
        return strip_blank([*dedent(self.lead), *([self.place.at("")] if self.lead else []), *self.content])


class Scanner:
    """Collects the sections of one document in `sections`; `unknown` counts what was not understood."""

    def __init__(self, definitions: inline.Definitions, files: Includes) -> None:
        self.files = files
        self.sections: list[Section] = [Section("")]
        self.unknown: Counter[str] = Counter()
        self.definitions = definitions
        self.module = ""
        self.title = ""
        self._levels: list[str] = []
        self._path: list[tuple[int, str]] = []
        self._held: list[Line] = []
        self._objects: list[str] = []
        self._depth = 0

    # --- what directives use ---

    def emit(self, line: Line, prefix: str = "") -> None:
        """A line of text; blank ones do not add up."""
        here = self.sections[-1].lines
        if not line.blank:
            self._place_held()
            here.append(line.at(prefix + line.text))
        elif here and not here[-1].blank:
            here.append(line.at(""))

    def emit_all(self, lines: Sequence[Line], prefix: str = "") -> None:
        """Lines that belong together, with a blank one before and after."""
        if lines:
            self.emit(lines[0].at(""))
            self._place_held()
            self.sections[-1].lines += [x.at("" if x.blank else prefix + x.text) for x in lines]
            self.emit(lines[-1].at(""))

    def hold(self, line: Line) -> None:
        """Keep a line for the heading that follows; without one, it is placed where it stands."""
        self._held.append(line)

    def capture(self, lines: Sequence[Line]) -> list[Line]:
        """What the lines render to, without adding it."""
        outer, self.sections = self.sections, [Section("")]
        try:
            self.scan(lines, nested=True)
            return strip_blank([line for section in self.sections for line in section.lines])
        finally:
            self.sections = outer

    def begin_object(self, name: str) -> None:
        """A section for an API object inside the current heading."""
        self._objects.append(name)
        self._begin(self._full_path(), under=self.sections[-1])

    def end_object(self) -> None:
        self._objects.pop()
        self._begin(self._full_path())

    @property
    def enclosing_object(self) -> str:
        return self._objects[-1] if self._objects else ""

    # --- scanning ---

    def scan(self, lines: Sequence[Line], prefix: str = "", *, nested: bool = False) -> None:
        """`prefix` is the indentation that the lines stood in; headings are none where text is nested."""
        if self._depth >= _MAX_DEPTH:
            self.unknown["text nested too deeply"] += 1
            self.emit_all(lines, prefix)
            return
        self._depth += 1
        i = 0
        while i < len(lines):
            i = self._step(lines, i, prefix, nested)
        self._depth -= 1
        if not nested:
            self._place_held()

    def _step(self, lines: Sequence[Line], i: int, prefix: str, nested: bool) -> int:
        line = lines[i]
        bare = line.text.strip()
        if not bare:
            self.emit(line)
            return i + 1
        if bare == ".." or bare.startswith(".. "):
            return self._explicit(line, lines, i, prefix)
        item = _LIST_ITEM.match(bare)
        if item and _DIRECTIVE.match(bare[item.end() :]):  # the item is the directive
            return self._explicit(
                line.at(" " * (line.indent + item.end()) + bare[item.end() :]), lines, i, prefix
            )
        if not nested and line.indent == 0:
            used = self._heading(lines, i)
            if used:
                return i + used
        for starts, find_end, parse in (
            (tables.GRID_BORDER, tables.grid_end, tables.grid_table),
            (tables.SIMPLE_BORDER, tables.simple_end, tables.simple_table),
        ):
            end = find_end(lines, i) if starts.match(bare) else i
            if end > i:
                rendered = tables.render(parse(lines[i:end]), self.capture)
                self.emit_all(rendered, prefix + " " * line.indent)
                return end
        if _PAGE_FIELD.match(line.text) and not self._path:
            return i + 1
        if _RULE.fullmatch(bare) and len(bare) >= 4 and (i + 1 >= len(lines) or lines[i + 1].blank):
            return i + 1  # a transition
        if bare == "::":
            return self._literal(lines, i, line.indent, prefix)
        self.emit(line.at(self.definitions.apply(line.text)), prefix)
        if bare.endswith("::") and (i + 1 >= len(lines) or lines[i + 1].blank):
            return self._literal(lines, i, _text_column(line), prefix)
        return i + 1

    def _heading(self, lines: Sequence[Line], i: int) -> int:
        """Lines used by a heading at `i`; 0 when there is none."""
        before = lines[i - 1].text if i else ""
        if before.strip() and not before.lstrip().startswith(".."):
            return 0  # the last line of a paragraph
        rule = _RULE.fullmatch(lines[i].text.rstrip())
        if rule and i + 2 < len(lines) and lines[i + 2].text.rstrip() == lines[i].text.rstrip():
            text = lines[i + 1].text.strip()
            if text and not _RULE.fullmatch(text):
                self._begin_heading(text, rule[1] * 2, lines[i : i + 3])
                return 3
        if rule or i + 1 >= len(lines):
            return 0
        under = _RULE.fullmatch(lines[i + 1].text.rstrip())
        text = lines[i].text.rstrip()
        if not under or (_LIST_ITEM.match(text) and len(under[0]) < len(text)):
            return 0
        if len(under[0]) < min(4, len(text)) or (under[0] in ("::", "..") and len(text) > 2):
            return 0
        self._begin_heading(text, under[1], lines[i : i + 2])
        return 2

    def _begin_heading(self, text: str, style: str, used: Sequence[Line]) -> None:
        if style not in self._levels:
            self._levels.append(style)
        level = self._levels.index(style)
        text = self.definitions.apply(text)
        name = inline.plain(text).strip()
        self.title = self.title or name
        deeper = bool(self._path) and level > self._path[-1][0]
        self._path = [p for p in self._path if p[0] < level] + [(level, name)]
        self._objects.clear()
        held, self._held = self._held, []
        self._begin(self._full_path(), under=self.sections[-1] if deeper else None)
        head = Line(text, used[0].first, used[-1].last)
        self.sections[-1].lines += [*held, head, head.at("")]
        self.sections[-1].head = len(self.sections[-1].lines)

    def _full_path(self) -> str:
        names = [name for _, name in self._path]
        names += [o for o in self._objects if not names or o != names[-1]]
        return SEPARATOR.join(names)

    def _begin(self, heading_path: str, under: Section | None = None) -> None:
        """A new section. A heading directly `under` another one: both lead it, none is a passage alone."""
        lines = under.lines if under and under.bare else []
        if lines or all(line.blank for line in self.sections[-1].lines):
            self.sections.pop()
        self.sections.append(Section(heading_path, lines))

    def _place_held(self) -> None:
        held, self._held = self._held, []
        self.sections[-1].lines += held

    def _literal(self, lines: Sequence[Line], i: int, margin: int, prefix: str) -> int:
        """The indented block after `::`."""
        end = indented_after(lines, i + 1, margin)
        block = strip_blank(lines[i + 1 : end])
        if block:
            column = min(line.indent for line in block if not line.blank)
            self.emit_all(fenced(dedent(block)), prefix + " " * column)
        return max(end, i + 1)

    def _explicit(self, line: Line, lines: Sequence[Line], i: int, prefix: str) -> int:
        """A line that begins with two dots, and what is indented under it from `i` on."""
        indent = line.indent
        bare = line.text.strip()
        end = indented_after(lines, i + 1, indent)
        prefix += " " * indent
        body = lines[i + 1 : end]
        note = _NOTE.match(bare)
        directive = _DIRECTIVE.match(bare)
        if _TARGET.match(bare):
            for own in [line, *body]:  # a long address goes on in the next line
                self.hold(own)
        elif _SUBSTITUTION.match(bare):
            pass  # applied where it is used
        elif note:
            self.emit(line.at(self.definitions.apply(f"[{note[1]}] {note[2]}")), prefix)
            self.scan(dedent(body), prefix + "  ", nested=True)
        elif directive:
            from ingest.loaders.rst.directives import run

            run(self, _directive(directive[1].lower(), directive[2] or "", line, body, prefix))
        # Anything else is a comment.
        return end


def _directive(name: str, argument: str, line: Line, body: Sequence[Line], prefix: str) -> Directive:
    option = _META_FIELD if name == "meta" else _OPTION
    k = 0
    lead = []
    while k < len(body) and not body[k].blank and not option.match(body[k].text):
        lead.append(body[k])
        k += 1
    options: dict[str, str] = {}
    key, column = "", 0
    while k < len(body) and not body[k].blank:
        found = option.match(body[k].text)
        if found and (not key or body[k].indent <= column):
            key, column = found[1], body[k].indent
            options[key] = (found[2] or "").strip()
        else:
            options[key] = f"{options[key]} {body[k].text.strip()}".strip()
        k += 1
    last = body[-1].last if body else line.last
    return Directive(name, argument.strip(), lead, options, dedent(body[k:]), line, last, prefix)


def _text_column(line: Line) -> int:
    item = _LIST_ITEM.match(line.text.strip())
    return line.indent + (item.end() if item else 0)
