"""Tags that open without end are taken out before a page is parsed.

HTML's own rules look up through all open elements at many tags, and open formatting elements anew in every
block: what nests deeply or is never closed costs the square of its number.
"""

from __future__ import annotations

import re

_MAX_BLOCKS = 300
MAX_FORMATS = 8
_TAG = re.compile(r"<!--|<(/?)([a-zA-Z][a-zA-Z0-9]*)")
FORMATS = {"a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"}
# They end with the next of their kind, or hold nothing.
_UNCOUNTED = {
    "area", "base", "body", "br", "col", "colgroup", "dd", "dt", "embed", "h1", "h2", "h3", "h4", "h5",
    "h6", "head", "hr", "html", "img", "input", "li", "link", "meta", "optgroup", "option", "p", "param",
    "rb", "rp", "rt", "source", "tbody", "td", "tfoot", "th", "thead", "tr", "track", "wbr",
}  # fmt: skip
_RAW = {"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes"}


def limited(html: str) -> str:
    """The page with the tags left out that would nest more deeply than any sensible page does."""
    depth = {True: 0, False: 0}  # of formatting elements, of others
    pieces: list[str] = []
    kept = at = 0
    while (tag := _TAG.search(html, at)) is not None:
        at = tag.end()
        name = (tag[2] or "").lower()
        if not name or (name in _RAW and not tag[1]):
            end = html.find("-->" if not name else f"</{name}", at)
            at = len(html) if end < 0 else end
            continue
        if name in _UNCOUNTED:
            continue
        formats = name in FORMATS
        before = depth[formats]
        depth[formats] = max(0, before - 1) if tag[1] else before + 1
        if max(before, depth[formats]) > (MAX_FORMATS if formats else _MAX_BLOCKS):
            end = html.find(">", at)
            at = len(html) if end < 0 else end + 1
            pieces += [html[kept : tag.start()], "" if formats else "<br>"]
            kept = at
    return "".join([*pieces, html[kept:]]) if pieces else html
