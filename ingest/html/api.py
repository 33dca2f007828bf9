"""Entries of API references: Sphinx's and Doxygen's, and definition lists whose terms are signatures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ingest.html.tree import Element

# Classes of `dl` in pages that Sphinx makes: old ones name the object, new ones the domain, too.
_OBJECTS = {
    "function", "class", "method", "classmethod", "staticmethod", "attribute", "property", "data",
    "exception", "module", "macro", "type", "struct", "enum", "enumerator", "member", "var", "describe",
    "object", "option", "cmdoption", "envvar", "decorator", "concept", "union", "alias", "directive",
    "role", "opcode",
}  # fmt: skip
_SIGNATURE = re.compile(
    r"(?:[\w:<>,*&\[\] ]+[ *&])?(~?[A-Za-z_][\w.:]*(?:<[^()]*>)?)\s*\(.*\)[^.]{0,60}", re.DOTALL
)
_NAME_CHARACTERS = 120


@dataclass(frozen=True)
class Signature:
    """An entry's name, with `()` where it is called, and its full signatures, one a line."""

    name: str
    lines: list[str]


def signature_of(definitions: Element, terms: Sequence[Element]) -> Signature | None:
    """The signature that the terms of an entry give; None where they are words."""
    lines = [text for term in terms if (text := one_line(term.text()))]
    if not lines:
        return None
    first = next(term for term in terms if term.text().strip())
    declared = bool(_OBJECTS.intersection(definitions.classes)) and "simple" not in definitions.classes
    if declared or any("sig" in term.classes for term in terms):
        return Signature(_sphinx_name(first, lines[0]), lines)
    found = _SIGNATURE.fullmatch(lines[0])
    if found is None or not any(e.tag in ("code", "tt", "samp") for e in first.walk()):
        return None
    return Signature(f"{found[1]}()", lines)


def one_line(text: str) -> str:
    """A declaration on one line, without links to its source."""
    text = re.sub(r"\[source\]|\[docs\]|¶|\uf0c1", " ", text)
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"(?<=[(\[]) | (?=[)\],])|,(?= ?\))", "", text)


def doxygen_name(prototype: Element) -> str:
    """The name of a member whose box no heading announces, as older versions write it; else empty."""
    item = prototype.parent
    before: Element | None = None
    for sibling in item.parent.elements() if item is not None and item.parent is not None else ():
        if sibling is item:
            break
        before = sibling
    if before is not None and "memtitle" in before.classes:
        return ""
    name = next((e for e in prototype.walk() if "memname" in e.classes and e.tag == "td"), prototype)
    found = re.search(r"([A-Za-z_~][\w:]*)\s*(?:\(.*)?$", one_line(name.text()))
    return found[1] + ("()" if "(" in prototype.text() else "") if found else ""


def _sphinx_name(term: Element, signature: str) -> str:
    parts = {
        name: e.text().strip() for e in term.walk() for name in e.classes if name.startswith(("sig-", "desc"))
    }
    own = parts.get("sig-name") or parts.get("descname")
    if not own:
        found = re.match(r"(?:[\w ]+ )?([\w.:-]+)", signature)
        return (found[1] if found else signature)[:_NAME_CHARACTERS]
    anchor = term.attributes.get("id") or ""
    if anchor.endswith("." + own) and re.fullmatch(r"[\w.]+", anchor):
        own = anchor
    else:
        own = (parts.get("sig-prename") or parts.get("descclassname") or "") + own
    called = re.search(re.escape(own.rpartition(".")[2]) + r"\s*\(", signature)
    return (own + "()" if called else own)[:_NAME_CHARACTERS]
