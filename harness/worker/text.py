"""Text that came from a problem, a candidate or a compiler, made fit for terminals, reports and databases."""

from __future__ import annotations

import unicodedata
from typing import Any

# Control characters, lone surrogates, and what changes the order or the presence of others.
_UNFIT = ("Cc", "Cs", "Cf")
_LAYOUT = "\n\t"


def printable(value: Any) -> Any:
    """The value with U+FFFD for each unfit character in its texts, also inside of lists and dictionaries."""
    if isinstance(value, str):
        value = value.replace("\r\n", "\n")
        if value.isascii() and value.isprintable():
            return value
        fit = (c if c in _LAYOUT or unicodedata.category(c) not in _UNFIT else "\ufffd" for c in value)
        return "".join(fit)
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [printable(item) for item in value]
    return value


def one_line(text: str) -> str:
    """All in one line, fit to print."""
    return " ".join(str(printable(text)).split())
