"""Which part of a page is its content: landmarks first, then what is known to be navigation is left out."""

from __future__ import annotations

import re
from collections.abc import Callable

from ingest.html.tree import Element, measure

# Names of classes and ids. Inside the content these are about the page, never of it, or repeat what stands
# beside them as TeX ...
_ABOUT_PAGE = re.compile(
    r"""(?:header|anchor|perma)-?link|anchorjs-link|hash-link|viewcode-(?:link|back)
    |copy-?(?:btn|button)|clipboard\w*|breadcrumbs?|wy-breadcrumbs.*|prev-?next.*|pagination|pager
    |(?:rst-footer|footer|navigation|pagination)-?(?:buttons|nav|links?)|edit-?(?:this-)?page.*|mw-editsection
    |cookie.*|.*-cookie.*|consent.*|onetrust.*|gdpr.*|skip-?(?:link|to-.*|nav)|feedback.*
    |share-?(?:buttons?|links?)|social-?(?:links?|share)|sr-only|visually-hidden
    |MathJax(?:_(?:Preview|Display|SVG|SVG_Display|CHTML))?|katex-html
    |toc|toctitle|table-of-contents|on-this-page|page-toc|(?:right|local|contents)-toc
    |linenos?|line-?numbers?|lineno.*|ln-num|lnt|gutter|noprint|print-only
    |theme-toggle.*|language-switcher""",
    re.VERBOSE,
)
# ... and these are beside it, where no landmark says what the content is.
_BESIDE = re.compile(
    r"""(?:.*-)?sidebar(?:-.*)?|sphinxsidebar.*|side-?nav.*|nav|nav-?bar.*|top-?bar|main-?nav|summary-?nav
    |nav-?(?:path|row|menu|list|wrap.*)|navigation|menu|mobile-menu|related|footer|page-?footer
    |site-(?:header|footer|nav)|banner|advert.*|ads|newsletter.*|search(?:-?(?:box|bar|form))?|MSearch.*
    |titlearea|announcement.*|headertabs|tabs2?""",
    re.VERBOSE,
)
_BESIDE_ROLES = {"navigation", "banner", "contentinfo", "search", "complementary", "dialog", "alertdialog"}
_CONTENT_NAMES = (
    "body", "document", "rst-content", "md-content", "bd-article", "devsite-article-body",
    "theme-doc-markdown", "markdown-body", "mw-parser-output", "contents", "documentation",
    "main-content", "article", "post-content", "entry-content", "page-content", "content", "main",
)  # fmt: skip
_ENOUGH = 0.4  # the share of the page's text that a landmark must hold to be believed
_TOO_MUCH = 0.5  # the share that no name of a class may take away


def content_of(body: Element) -> Element:
    """The element that holds the page's content, cleared of what is not."""
    total = body.size
    _prune(
        body, lambda e: e.attributes.get("role") in ("navigation", "search") or _named(e, _ABOUT_PAGE, total)
    )
    root = _landmark(body)
    if root is None:
        root = body
        _prune(body, lambda e: _beside(e, total))
    return root


def _landmark(body: Element) -> Element | None:
    rest = body.size
    found: dict[str, list[Element]] = {name: [] for name in ("<main>", "<article>", *_CONTENT_NAMES)}
    for element in body.walk():
        tag = element.tag
        if tag in ("aside", "footer", "header"):
            rest -= element.size
        elif tag == "main" or element.attributes.get("role") == "main":
            found["<main>"].append(element)
        elif tag == "article":
            found["<article>"].append(element)
        if element.attributes and tag not in ("body", "span", "a", "p", "td"):
            for name in _names(element):
                if name in found:
                    found[name].append(element)
    # What a page has several of is no landmark.
    candidates = [elements[0] for elements in found.values() if len(elements) == 1]
    return next((e for e in candidates if e.size and e.size >= _ENOUGH * rest), None)


def _beside(element: Element, total: int) -> bool:
    if element.attributes.get("role") in _BESIDE_ROLES or element.tag in ("aside", "footer"):
        return element.size < _TOO_MUCH * total
    if element.tag == "header":
        return not any(e.tag in ("h1", "h2") for e in element.walk())
    return _named(element, _BESIDE, total)


def _named(element: Element, pattern: re.Pattern[str], total: int) -> bool:
    """Whether a class or the id says so; never true for an element with most of the text in it."""
    if not element.attributes or element.tag in ("body", "main", "article", "h1"):
        return False
    if element.size >= max(1.0, _TOO_MUCH * total):
        return False
    return any(pattern.fullmatch(name) for name in _names(element))


def _names(element: Element) -> list[str]:
    name = element.attributes.get("id")
    return [*element.classes, name] if name else element.classes


def _prune(root: Element, unwanted: Callable[[Element], bool]) -> None:
    stack = [root]
    while stack:
        element = stack.pop()
        kept = [c for c in element.children if isinstance(c, str) or not unwanted(c)]
        if len(kept) < len(element.children):
            element.children = kept
        stack += element.elements()
    measure(root)
