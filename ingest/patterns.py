"""Glob patterns on the command line: `docs/**/*.md`, quoted so that the shell leaves them alone."""

from __future__ import annotations

import re
from pathlib import Path

_MAGIC = re.compile(r"[*?\[]")


def is_pattern(text: str) -> bool:
    return _MAGIC.search(text) is not None


def split(text: str) -> tuple[Path, re.Pattern[str]]:
    """The folder before the first wildcard, and what a path relative to it must match as a whole.

    `*` and `?` stop at a slash, `**` as a whole part stands for any number of folders, `[…]` is a set.
    """
    parts = Path(text).expanduser().parts
    fixed = next(i for i, part in enumerate(parts) if is_pattern(part))
    return Path(*parts[:fixed]), re.compile(_translate(parts[fixed:]), re.DOTALL)


def _translate(parts: tuple[str, ...]) -> str:
    expression = ""
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        if part == "**":
            expression += ".*" if last else "(?:[^/]+/)*"
        else:
            expression += _part(part) + ("" if last else "/")
    return expression


def _part(part: str) -> str:
    expression, i = "", 0
    while i < len(part):
        c = part[i]
        end = part.find("]", i + 2) if c == "[" else -1
        if c in "*?":
            expression += "[^/]*" if c == "*" else "[^/]"
        elif end > 0:
            body = part[i + 1 : end].replace("\\", r"\\").replace("[", r"\[")
            expression += f"[^{body[1:]}]" if body[0] in "!^" else f"[{body}]"
            i = end
        else:
            expression += re.escape(c)
        i += 1
    return expression
