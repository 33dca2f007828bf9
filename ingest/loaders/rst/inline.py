"""Inline markup: what of it the embedding model and headings need not see."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_MAX_NESTING = 4  # of definitions in definitions
_MAX_CHARACTERS = 2000  # of what one stands for
_ROLE = re.compile(r":(?:[A-Za-z][\w+.-]*:)*[A-Za-z][\w+.-]*:`([^`]+)`")
_NAMED_ROLE = re.compile(r":([A-Za-z][\w+.-]*):`([^`]+)`")
_LITERAL = re.compile(r"``(.+?)``")
_LINK = re.compile(r"`([^`]+?)(?:\s*<[^<>`]*>)?`_{0,2}(?!\w)")
_TARGET = re.compile(r"^(.+?)\s*<[^<>]*>$", re.DOTALL)
_LABEL = re.compile(r"^\s*\.\. _`?([^`]+?)`?:\s*(.*)$")
_STRONG = re.compile(r"\*\*(.+?)\*\*")
_SUBSTITUTION = re.compile(r"\|([^|\s](?:[^|]*[^|\s])?)\|_{0,2}")


def plain(text: str) -> str:
    """A line without roles, link targets and marks around literals; identifiers stay as they are.

    >>> plain("see :func:`~a.b.c` and :ref:`the guide <guide>`, ``x[0]``")
    'see a.b.c and the guide, x[0]'
    """
    label = _LABEL.match(text)
    if label:
        return f"{label[1]} {label[2]}".strip()
    text = _ROLE.sub(lambda m: _shown(m[1]), text)
    text = _LITERAL.sub(r"\1", text)
    text = _LINK.sub(r"\1", text)
    return _STRONG.sub(r"\1", text)


def without_roles(text: str) -> str:
    """The same for lines that may be code, in which stars and backticks have other meanings."""
    return _LITERAL.sub(r"\1", _ROLE.sub(lambda m: _shown(m[1]), text))


def _shown(content: str) -> str:
    """What a role shows: its explicit title, else its target without the marks that shorten or unlink it."""
    titled = _TARGET.match(content)
    return titled[1] if titled else content.lstrip("~!")


@dataclass
class Definitions:
    """What `|name|` stands for (names as docutils compares them), and roles that stand for addresses: for
    each its address and caption, in which `%s` is the role's text; without a caption the address is shown.
    """

    words: dict[str, str] = field(default_factory=dict)
    links: dict[str, tuple[str, str | None]] = field(default_factory=dict)

    def add(self, text: str) -> None:
        """All substitution definitions of a text, wherever they stand."""
        self.words |= definitions(text)

    def apply(self, text: str) -> str:
        """A line with what is defined put in place, but for literals."""
        words, links = "|" in text and self.words, ":`" in text and self.links
        if not words and not links:
            return text
        pieces = re.split(r"(``.+?``)", text)
        for i in range(0, len(pieces), 2):
            if words:
                pieces[i] = _SUBSTITUTION.sub(lambda m: self._words(m[1], m[0]), pieces[i])
            if links:
                pieces[i] = _NAMED_ROLE.sub(lambda m: self._link(m[1], m[2], m[0]), pieces[i])
        return "".join(pieces)

    def _words(self, name: str, otherwise: str) -> str:
        """Definitions may use one another; those that grow without end are cut off."""
        text = self.words.get(key(name), otherwise)
        for _ in range(_MAX_NESTING):
            if "|" not in text or len(text) > _MAX_CHARACTERS:
                break
            text = _SUBSTITUTION.sub(lambda m: self.words.get(key(m[1]), m[0]), text)
        return text[:_MAX_CHARACTERS]

    def _link(self, role: str, content: str, otherwise: str) -> str:
        if role not in self.links:
            return otherwise
        address, caption = self.links[role]
        titled = re.match(r"(.+?)\s*<([^<>]*)>$", content)
        target = titled[2] if titled else content
        address = address.replace("%s", target)
        shown = titled[1] if titled else caption.replace("%s", target) if caption else ""
        return f"`{shown} <{address}>`_" if shown else address


_DEFINITION = re.compile(r"^\s*\.\. \|([^|]+)\|\s+(replace|unicode|image|raw|date)::\s*(.*)$")


def definitions(text: str) -> dict[str, str]:
    """All substitution definitions of a text, wherever they stand."""
    found: dict[str, str] = {}
    lines = text.split("\n")
    for i, line in enumerate(lines):
        match = _DEFINITION.match(line) if "|" in line else None
        if match is None:
            continue
        value = match[3].strip()
        alt = ""
        for follower in lines[i + 1 :]:
            if not follower.startswith((" ", "\t")) or not follower.strip():
                break
            if follower.strip().startswith(":alt:"):
                alt = follower.strip()[5:].strip()
            elif match[2] == "replace":
                value += " " + follower.strip()
        if match[2] == "unicode":
            value = _characters(value)
        elif match[2] == "image":
            value = alt
        elif match[2] in ("raw", "date"):
            value = ""
        found[key(match[1])] = value
    return found


def key(name: str) -> str:
    """A name as docutils compares it."""
    return " ".join(name.split()).lower()


def _characters(value: str) -> str:
    """`0xA9`, `U+2014` and `&#x2014;` become characters; a comment after `..` is dropped."""

    def convert(word: str) -> str:
        code = re.fullmatch(r"(?:0x|x|\\x|U\+|u|\\u|&#x)([0-9A-Fa-f]{1,6});?", word)
        number = int(code[1], 16) if code else int(word) if word.isdecimal() else -1
        valid = 0 < number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF
        return chr(number) if valid else word

    return "".join(convert(word) for word in value.partition(" .. ")[0].split())
