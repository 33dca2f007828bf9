"""A page as a light tree of elements and strings, parsed as browsers do.

Markup that was never closed nests without bound; below a depth that no real page needs, elements are
dissolved and only their text is kept, so that what walks the tree may recurse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingest.html.nesting import limited
from ingest.rendering import clean

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_MAX_DEPTH = 120
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
    children: list[Element | str] = field(default_factory=list, repr=False)
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
    """The page's body, and the text of its `title` element."""
    from selectolax.lexbor import LexborHTMLParser

    if _XHTML.search(html[:1000]):
        html = _CLOSED.sub(r"<\1\2></\1>", html)
    parser = LexborHTMLParser(limited(html))
    title = parser.css_first("head > title")
    root = Element("body", {})
    if parser.body is not None:
        _fill(root, parser.body)
    measure(root)
    return root, " ".join(clean(title.text() if title is not None else "").split())


def _fill(root: Element, body: LexborNode) -> None:
    """Copy what is below `body`; the walk keeps its own stack, as the page may nest deeper than Python."""
    stack: list[tuple[LexborNode | None, Element, int]] = [(body.first_child, root, 1)]
    while stack:
        node, parent, depth = stack.pop()
        if node is None:
            continue
        stack.append((node.next, parent, depth))
        tag = node.tag or ""
        if tag == "-text":
            parent.children.append(clean(node.text_content or ""))
        elif tag == "script" and _MATH_SCRIPT.match(node.attributes.get("type") or ""):
            parent.children.append(f"${clean(node.text()).strip()}$")
        elif tag in _DROPPED or tag.startswith(("-", "_")):
            continue
        elif depth > _MAX_DEPTH:
            parent.children.append(" ")
            stack.append((node.first_child, parent, depth))
        else:
            element = Element(tag, node.attributes, parent)
            parent.children.append(element)
            stack.append((node.first_child, element, depth + 1))


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
