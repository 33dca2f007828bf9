"""Headings in the comments of Python scripts that are documents: Sphinx-Gallery's and Jupytext's cells.

# %%
# Compute Kernel
# --------------
# Text in reStructuredText.

# %% A title in Jupytext's percent format
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_TITLE = re.compile(r"#\s?(\S.*?)\s*$")
_RULE = re.compile(r"#\s?([=\-~^\"'`*+.:])\1{2,}\s*$")
_CELL = re.compile(r"#\s?%%+\s*(?!\[)(\S.*?)?\s*(?:\[\w+\].*)?$")
_CELL_LEVEL = 0  # titles of cells stand above all underlined ones


def headings(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """(1-based line where it begins, level, text) of comments at the margin: a line over a rule as long as
    it, or a cell's title. Levels of rules in their order of appearance, as in reStructuredText.
    """
    levels: dict[str, int] = {}
    for i, line in enumerate(lines):
        if not line.startswith("#"):
            continue
        cell = _CELL.match(line)
        if cell:
            if cell[1]:
                yield i + 1, _CELL_LEVEL, cell[1]
            continue
        rule = _RULE.match(lines[i + 1]) if i + 1 < len(lines) else None
        title = _TITLE.match(line)
        before = lines[i - 1].strip() if i else ""
        starts = before in ("", "#") or not before.startswith("#") or _is_mark(before)
        if not rule or not title or not starts or _RULE.match(line):
            continue
        if len(lines[i + 1].lstrip("# ").rstrip()) >= len(title[1]) - 1:
            level = levels.setdefault(rule[1], len(levels) + 1)
            yield (i if _CELL.match(before) else i + 1), level, title[1]


def _is_mark(line: str) -> bool:
    """A cell's mark, or the row of hashes that stands for it."""
    return bool(_CELL.match(line)) or (len(line) >= 20 and set(line) == {"#"})
