"""An element and what is below it as Markdown blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ingest.html import api, tables
from ingest.html.tree import BLOCKS, Element
from ingest.rendering import MarkdownWriter, fenced

_HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5, "h6": 6}
_LISTINGS = {"pre", "xmp", "listing", "plaintext"}
_CODE = {"code", "tt", "samp", "kbd"}
_LANGUAGE = re.compile(r"(?:language|lang|highlight(?:-source)?|sourceCode|brush)[-: ]+([\w+#]+)")
_LANGUAGE_NAMES = {
    "default": "", "none": "", "text": "", "plaintext": "", "notranslate": "", "ipython3": "python",
    "python3": "python", "c++": "cpp",
}  # fmt: skip
_NUMBERS = re.compile(r"line-?numbers?|lineno\w*|linenos|ln-num|lnt?|blob-num")


class Renderer:
    """Writes into a MarkdownWriter. `title` is what text before the first heading belongs to."""

    def __init__(self, writer: MarkdownWriter, title: str) -> None:
        self._writer = writer
        self._inline: list[str] = []
        self._indent = ""
        self._marker = ""  # stands before the first line of the next block
        self._tight = False  # the next block follows without a blank line
        self._section = (1, title)
        self._left: tuple[int, str] | None = None  # the section to return to when something follows

    def render(self, element: Element) -> None:
        self._flow(element)
        self._flush()

    # --- blocks ---

    def _flow(self, element: Element) -> None:
        for child in element.children:
            if isinstance(child, str):
                self._inline.append(re.sub(r"\s+", " ", child))
            elif child.tag in _LISTINGS or "fragment" in child.classes:
                self._code(child)
            elif child.tag in BLOCKS or child.blocks:
                self._flush()
                self._block(child)
                self._flush()
            else:
                self._inline.append(inline(child))

    def _block(self, element: Element) -> None:
        tag = element.tag
        if tag in _HEADINGS and not element.blocks:
            self._heading(_HEADINGS[tag], inline_text(element))
        elif tag in ("ul", "ol", "menu", "dir"):
            self._list(element)
        elif tag == "dl":
            self._definitions(element)
        elif tag == "table":
            self._table(element)
        elif tag == "blockquote":
            self._indented(element, "> ", "> ")
        elif tag == "hr":
            return
        elif "memproto" in element.classes:  # Doxygen: a declaration, laid out as a table
            api_name = api.doxygen_name(element)
            if api_name:
                self._heading(self._section[0] + 1, api_name)
            self._emit(fenced([api.one_line(element.text())]))
        else:
            self._flow(element)

    def _heading(self, level: int, text: str) -> None:
        text = text.replace("\n", " ").strip("¶§# ")
        if not text:
            return
        self._section, self._left = (level, text), None
        self._writer.heading(level, text)
        self._tight = False

    def _list(self, element: Element) -> None:
        ordered = element.tag == "ol"
        start = element.attributes.get("start") or "1"
        number = int(start) if start.isdecimal() and len(start) < 7 else 1
        self._tight = bool(self._indent)
        for child in element.children:
            if isinstance(child, str) or child.tag != "li":
                self._flow(_wrapped(child))
                self._flush()
                continue
            marker = f"{number}. " if ordered else "- "
            number += 1
            self._indented(child, marker, " " * len(marker))
            self._tight = True
        self._tight = bool(self._indent)

    def _indented(self, element: Element, marker: str, indent: str) -> None:
        outer, self._indent = self._indent, self._indent + indent
        self._marker = (self._marker or outer) + marker
        self._flow(element)
        self._flush()
        self._indent, self._marker = outer, ""

    def _definitions(self, element: Element) -> None:
        above = self._section
        described = False
        for entry in _entries(element):
            terms = [term for term in entry if term.tag == "dt"]
            signature = api.signature_of(element, terms)
            if signature is not None:
                self._heading(above[0] + 1, signature.name)
                self._emit(fenced(signature.lines))
                described = True
            else:
                for term in terms:
                    self._flow(term)
                    self._flush()
                    self._tight = True
            for body in (e for e in entry if e.tag != "dt"):
                if signature is not None:
                    self._flow(body)
                    self._flush()
                else:
                    self._indented(body, ": ", "  ")
            self._tight = False
            if signature is not None:
                self._section = (above[0] + 1, signature.name)
        if described:
            self._section = self._left = above

    def _table(self, table: Element) -> None:
        for caption in (e for e in table.elements() if e.tag == "caption"):
            self._flow(caption)
            self._flush()
        code = tables.code_cell(table)
        lines = tables.numbered_lines(table)
        if code is not None:
            self._flow(code)
        elif lines is not None:
            self._emit(fenced(lines, language_of(table)))
        elif tables.is_layout(table):
            self._layout(table)
        elif any(_is_listing(e) for e in table.walk()):
            self._records(table)
        else:
            grid = tables.grid_of(table, cell_text)
            if grid.rows or any(grid.header):
                self._before()
                self._writer.table(grid.header, grid.rows, self._indent)

    def _layout(self, table: Element) -> None:
        """Cells one after the other; those of a row with plain text only stay on one line."""
        for row in tables.rows_of(table):
            cells = tables.cells_of(row)
            if any(cell.blocks for cell in cells):
                for cell in cells:
                    self._flow(cell)
                    self._flush()
            else:
                self._inline.append(" ".join(text for cell in cells if (text := inline_text(cell))))
                self._flush()

    def _records(self, table: Element) -> None:
        """A table with listings in its cells: row after row, each cell below the name of its column."""
        names: list[str] = []
        for row in tables.rows_of(table):
            cells = tables.cells_of(row)
            if not names and all(cell.tag == "th" for cell in cells):
                names = [cell_text(cell) for cell in cells]
                continue
            for index, cell in enumerate(cells):
                if index < len(names) and names[index] and cell.size:
                    self._inline.append(f"{names[index]}: ")
                self._flow(cell)
                self._flush()

    def _code(self, element: Element) -> None:
        self._flush()
        lines = code_lines(element)
        if lines:
            self._emit(fenced(lines, language_of(element)))

    # --- output ---

    def _flush(self) -> None:
        """End the paragraph."""
        text = _tidy("".join(self._inline))
        self._inline = []
        if text:
            self._emit(text.split("\n"))

    def _emit(self, lines: list[str]) -> None:
        self._before()
        lead = self._marker or self._indent
        rest = self._indent
        self._writer.block(
            [(lead if i == 0 else rest) + line if line else line for i, line in enumerate(lines)],
            tight=self._tight,
        )
        self._marker, self._tight = "", False

    def _before(self) -> None:
        if self._left is not None:
            if self._writer.headings:
                self._writer.resume(*self._left)
            self._left = None


def _wrapped(node: Element | str) -> Element:
    return Element("div", {}, None, [node])


def _entries(element: Element) -> Iterable[list[Element]]:
    """The terms and definitions of a list, by entry; HTML allows a `div` around each."""
    entry: list[Element] = []
    stack = list(reversed(list(element.elements())))
    while stack:
        child = stack.pop()
        if child.tag == "div" and any(e.tag in ("dt", "dd") for e in child.elements()):
            stack += reversed(list(child.elements()))
            continue
        if child.tag == "dt" and any(e.tag != "dt" for e in entry):
            yield entry
            entry = []
        entry.append(child)
    if entry:
        yield entry


# --- inline text ---


def inline(element: Element) -> str:
    """The text of an inline element: code in backticks, images as their alternative text, no other marks."""
    if element.tag == "br":
        return "\n"
    if element.tag == "img":
        alt = " ".join((element.attributes.get("alt") or "").split())
        return f"[{alt}]" if re.search(r"\w\W+\w", alt) else ""
    if element.tag == "math":
        tex = next((e.text() for e in element.walk() if e.tag == "annotation"), "")
        return f"${' '.join(tex.split())}$" if tex.strip() else element.text()
    if element.tag in _CODE:
        text = " ".join(element.text().split())
        mark = "``" if "`" in text else "`"
        return f"{mark}{text}{mark}" if text else ""
    parts = [inline(c) if isinstance(c, Element) else re.sub(r"\s+", " ", c) for c in element.children]
    text = "".join(parts)
    if element.tag == "sup" and re.fullmatch(r"[-+\w]{1,4}", text.strip()):
        return "^" + text.strip()
    return text


def inline_text(element: Element) -> str:
    """An element's own text on one line or, where it has line breaks, several."""
    return _tidy(
        "".join(inline(c) if isinstance(c, Element) else re.sub(r"\s+", " ", c) for c in element.children)
    )


def cell_text(cell: Element) -> str:
    """All text of a cell on one line: blocks follow after a blank, list items after a semicolon."""
    parts: list[str] = []

    def visit(element: Element) -> None:
        for child in element.children:
            if isinstance(child, str):
                parts.append(re.sub(r"\s+", " ", child))
            elif child.tag == "pre":
                parts.append(f" `{' '.join(child.text().split())}` ")
            elif child.tag in BLOCKS or child.blocks:
                parts.append("; " if child.tag == "li" and _has_text(parts) else " ")
                visit(child)
                parts.append(" ")
            else:
                parts.append(inline(child))

    visit(cell)
    return re.sub(r"\s+(?=;)", "", " ".join("".join(parts).split()))


def _has_text(parts: list[str]) -> bool:
    return any(part.strip() for part in parts)


def _tidy(text: str) -> str:
    lines = (re.sub(r" +", " ", line).strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


# --- code ---


def code_lines(element: Element) -> list[str]:
    """The lines of a listing, whatever they are marked up with, without line numbers."""
    parts: list[str] = []

    def visit(element: Element) -> None:
        for child in element.children:
            if isinstance(child, str):
                parts.append(child)
            elif child.tag == "br":
                parts.append("\n")
            elif not any(_NUMBERS.fullmatch(name) for name in child.classes):
                if child.tag in BLOCKS and parts and not parts[-1].endswith("\n"):
                    parts.append("\n")
                visit(child)
                if child.tag in BLOCKS and not (parts and parts[-1].endswith("\n")):
                    parts.append("\n")

    visit(element)
    lines = [line.rstrip() for line in "".join(parts).split("\n")]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def language_of(element: Element) -> str:
    """What the classes of the listing, or of what is closely around it, say; empty where they do not."""
    near = [*element.elements(), element, *list(element.within())[:3]]
    for candidate in near:
        said = candidate.attributes.get("data-lang") or candidate.attributes.get("data-language")
        found = _LANGUAGE.search(" ".join(candidate.classes))
        name = (said or (found[1] if found else "")).lower()
        if re.fullmatch(r"[\w+#]+", name):
            return _LANGUAGE_NAMES.get(name, name)
    return ""


def _is_listing(element: Element) -> bool:
    return element.tag == "pre" and len(code_lines(element)) > 1
