"""What of a question is worth looking for: error messages without what differs from run to run."""

from __future__ import annotations

import re

# Each says nothing about the error's kind, matches no document, and draws the question's vector away from it.
_RUN_SPECIFIC = (
    re.compile(r"\x1b\[[0-9;]*[A-Za-z]"),  # colours of a terminal
    re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?Z?"),  # times
    re.compile(r"\b0x[0-9a-fA-F]{5,}\b"),  # addresses; shorter ones are constants people ask about
    re.compile(r"(?<![\w/.])/(?:[^\s/:\"'()<>]+/){2,}"),  # folders of absolute paths; the file's name stays
    re.compile(r"\b[A-Za-z]:\\(?:[^\s\\:\"'()<>]+\\)+"),
    re.compile(r"(?<=\.\w)(\w{0,4}):\d+(?::\d+)?\b"),  # line and column behind a file's name
    re.compile(r"(?<=[\"'\w]), line \d+"),
)


def storable(text: str) -> str:
    """`text` without what neither SQLite nor a tokenizer takes, and no document has: NUL, lone surrogates."""
    return text.encode("utf-8", "replace").decode().replace("\x00", " ")


def plain_question(text: str) -> str:
    """`text` without addresses, times, folders and line numbers; as it is where nothing else would remain."""
    plain = text = storable(text)
    for pattern in _RUN_SPECIFIC:
        plain = pattern.sub(lambda m: m.group(1) if m.re.groups else " ", plain)
    return plain if plain.strip() else text
