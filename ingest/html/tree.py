"""A page as a light tree of elements and strings, parsed as browsers do.

Markup that was never closed nests without bound; below a depth that no real page needs, elements are
dissolved and only their text is kept, so that what walks the tree may recurse.

The parser's own tree takes hundreds of bytes for each tag. It is copied into flat arrays and given up before
ours is built, so that there is never more than one of them; a page for which it alone would be too large is
refused.
"""

from __future__ import annotations

import ctypes
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING

from ingest.errors import Unreadable
from ingest.html.nesting import FORMATS, MAX_FORMATS, limited
from ingest.rendering import clean

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_MAX_DEPTH = 120
# Bytes that the parser takes, as measured for pages made of little else; each tag has text beside it.
_TAG_BYTES, _ATTRIBUTE_BYTES = 330, 300
_MAX_TREE_BYTES = 560_000_000
_MAX_ATTRIBUTES = 3000  # of one tag
_ATTRIBUTES = frozenset({
    "class", "id", "role", "rowspan", "colspan", "start", "alt", "data-lang", "data-language",
})  # fmt: skip
_NONE: dict[str, str | None] = {}
# What never holds text of a page. `button` and its like hold words such as "Copy".
_DROPPED = frozenset({
    "script", "style", "template", "head", "noscript", "svg", "iframe", "object", "embed", "canvas",
    "audio", "video", "map", "area", "button", "input", "select", "option", "datalist", "textarea", "nav",
    "dialog", "link", "meta", "base",
})  # fmt: skip
BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dir",
    "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5",
    "h6", "header", "hgroup", "hr", "html", "legend", "li", "listing", "main", "menu", "ol", "p",
    "plaintext", "pre", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
    "xmp",
})  # fmt: skip
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)[^>]*")
_MATH_SCRIPT = re.compile(r"math/tex")
# XHTML may close these in their opening tag; as HTML they would swallow all that follows.
_XHTML = re.compile(r"<\?xml|xhtml", re.IGNORECASE)
_CLOSED = re.compile(r"<(script|style|title|iframe|textarea|noscript)\b([^<>]*?)/>", re.IGNORECASE)


@dataclass(slots=True, eq=False)
class Element:
    """`size` is the number of characters of text in it; `blocks` whether a block is among its descendants."""

    tag: str
    attributes: dict[str, str | None]
    parent: Element | None = field(default=None, repr=False)
    children: Sequence[Element | str] = field(default=(), repr=False)
    size: int = 0
    blocks: bool = False

    @property
    def classes(self) -> list[str]:
        return (self.attributes.get("class") or "").split()

    def elements(self) -> Iterator[Element]:
        """The children that are elements."""
        return (child for child in self.children if isinstance(child, Element))

    def walk(self) -> Iterator[Element]:
        """This element and all below it, in document order."""
        stack = [self]
        while stack:
            element = stack.pop()
            yield element
            stack += [c for c in reversed(element.children) if isinstance(c, Element)]

    def within(self) -> Iterator[Element]:
        """The elements around this one, the nearest first."""
        around = self.parent
        while around is not None:
            yield around
            around = around.parent

    def text(self) -> str:
        """All text in it, white space as it is."""
        parts: list[str] = []
        stack: list[Element | str] = [self]
        while stack:
            node = stack.pop()
            if isinstance(node, str):
                parts.append(node)
            else:
                stack += reversed(node.children)
        return "".join(parts)


def parse(html: str) -> tuple[Element, str]:
    """The page's body, and the text of its `title` element. Raises Unreadable for a page of too many tags."""
    if _XHTML.search(html[:1000]):
        html = _CLOSED.sub(r"<\1\2></\1>", html)
    needed = tree_bytes(html)
    if needed > _MAX_TREE_BYTES:
        raise Unreadable(
            f"its markup would take {needed / 1e6:.0f} MB of memory (limit {_MAX_TREE_BYTES / 1e6:.0f} MB)",
            "split the page, or convert it to Markdown",
        )
    flat = _Flat()
    flat.fill(limited(html))
    _give_back()
    root = flat.tree()
    measure(root)
    return root, flat.title


def _give_back() -> None:
    """Return what the parser has freed to the system; glibc would keep it, where ours cannot use it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def tree_bytes(html: str) -> int:
    """About what the parser's tree of the page takes. Raises Unreadable for a tag out of reason."""
    tags = attributes = formats = 0
    for found in _TAG.finditer(html):
        tag = found[0]
        name = found[2].lower()
        if name in FORMATS:
            formats = min(MAX_FORMATS, max(0, formats + (-1 if found[1] else 1)))
        if found[1]:
            continue
        # What is open when a block begins opens anew in it.
        tags += 1 + (formats if name in BLOCKS else 0)
        outside_quotes = '" '.join(tag.split('"')[::2]) if '"' in tag else tag
        own = len(outside_quotes.replace("/", " ").split()) - 1
        if own > _MAX_ATTRIBUTES:  # the parser compares each with all before it
            raise Unreadable(f"a tag with more than {_MAX_ATTRIBUTES} attributes")
        attributes += own
    return tags * _TAG_BYTES + attributes * _ATTRIBUTE_BYTES


class _Flat:
    """A tree as what happens on the way through it. `_steps` has for an element that begins the numbers of
    its tag and attributes, for its end -1, and for a text -2 less its length.
    """

    def __init__(self) -> None:
        self.title = ""
        self._steps = array("i")
        self._text = StringIO()
        self._tags: dict[str, int] = {}
        self._attributes: dict[tuple[tuple[str, str | None], ...], int] = {}

    def fill(self, html: str) -> None:
        """Parse the page; the parser's tree is gone afterwards."""
        from selectolax.lexbor import LexborHTMLParser

        parser = LexborHTMLParser(html)
        title = parser.css_first("head > title")
        self.title = " ".join(clean(title.text() if title is not None else "").split())
        if parser.body is not None:
            self._copy(parser.body)

    def tree(self) -> Element:
        """The tree; equal attributes and equal short texts are one object."""
        text, at = self._text.getvalue(), 0
        tags = list(self._tags)
        attributes = [dict(pairs) if pairs else _NONE for pairs in self._attributes]
        known: dict[str, str] = {}
        root = Element("body", _NONE)
        stack: list[tuple[Element, list[Element | str]]] = [(root, [])]
        steps = iter(self._steps)
        for step in steps:
            parent, children = stack[-1]
            if step == -1:
                parent.children = tuple(children)
                stack.pop()
            elif step < -1:
                piece = text[at : at - 2 - step]
                at += len(piece)
                children.append(known.setdefault(piece, piece) if len(piece) < 16 else piece)
            else:
                element = Element(tags[step], attributes[next(steps)], parent)
                children.append(element)
                stack.append((element, []))
        root.children = tuple(stack[0][1])
        return root

    def _copy(self, body: LexborNode) -> None:
        """Copy what is below `body`. The walk keeps its own stack: the page may nest deeper than Python."""
        stack: list[tuple[LexborNode | None, int, bool]] = [(body.first_child, 1, False)]
        while stack:
            node, depth, inside = stack.pop()
            if node is None:
                if inside:
                    self._steps.append(-1)
                continue
            stack.append((node.next, depth, inside))
            tag = node.tag or ""
            if tag == "-text":
                self._add(clean(node.text_content or ""))
            elif tag == "script" and _MATH_SCRIPT.match(node.attributes.get("type") or ""):
                self._add(f"${clean(node.text()).strip()}$")
            elif tag in _DROPPED or tag.startswith(("-", "_")):
                continue
            elif depth > _MAX_DEPTH:
                self._add(" ")
                stack.append((node.first_child, depth, False))
            else:
                said = tuple((name, v) for name, v in node.attributes.items() if name in _ATTRIBUTES)
                self._steps.append(self._tags.setdefault(tag, len(self._tags)))
                self._steps.append(self._attributes.setdefault(said, len(self._attributes)))
                stack.append((node.first_child, depth + 1, True))

    def _add(self, text: str) -> None:
        self._text.write(text)
        self._steps.append(-2 - len(text))


def measure(root: Element) -> None:
    """Set `size` and `blocks` of every element."""
    for element in reversed(list(root.walk())):
        element.size = 0
        element.blocks = False
        for child in element.children:
            if isinstance(child, str):
                element.size += len(child.strip())
            else:
                element.size += child.size
                element.blocks |= child.blocks or child.tag in BLOCKS
