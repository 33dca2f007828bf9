"""Finding the candidate in a model's answer."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass

_OPENING = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")
_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_HYPOTHESIS = re.compile(r"^[\s*#>_-]*hypothesis[*_]*\s*:[*_]*\s*(.+)$", re.IGNORECASE | re.MULTILINE)
CLASS = "ModelNew"


class Unparseable(Exception):
    """The answer holds no usable candidate; the message tells the model what is wrong."""


@dataclass(frozen=True)
class Parsed:
    source: str
    hypothesis: str


@dataclass(frozen=True)
class _Block:
    text: str
    closed: bool


def parse_answer(text: str, *, truncated: bool = False) -> Parsed:
    """The last fenced block (or the bare text) that is valid Python and defines `ModelNew`.

    An unclosed fence counts only when the answer was not cut off. Raises Unparseable.
    """
    text = without_thinking(text)
    blocks = [block for block in _blocks(text) if block.closed or not truncated]
    candidates = [block.text for block in blocks]
    if not candidates and not truncated:
        candidates = [text]
    problem = ""
    for source in reversed(candidates):
        if CLASS not in source:
            continue
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError) as error:
            where = f" in line {error.lineno}" if isinstance(error, SyntaxError) else ""
            problem = problem or f"the file is not valid Python: {getattr(error, 'msg', error)}{where}"
            continue
        except (RecursionError, MemoryError):
            problem = problem or "the file is nested too deeply"
            continue
        if any(isinstance(node, ast.ClassDef) and node.name == CLASS for node in tree.body):
            return Parsed(source.strip("\n") + "\n", _hypothesis(text))
        problem = problem or f"no top-level class {CLASS}"
    if truncated:
        problem = "the answer was cut off before the file was complete"
    raise Unparseable(problem or f"no fenced Python file that defines class {CLASS}")


def without_thinking(text: str) -> str:
    """An answer without what a reasoning model thought before it."""
    return _THINKING.sub("", text)


def _hypothesis(text: str) -> str:
    match = _HYPOTHESIS.search(text)
    return " ".join(match.group(1).split()).strip("*_ ") if match else "none was stated"


def _blocks(text: str) -> list[_Block]:
    """Fenced blocks as CommonMark has them: closed by at least as many of the opening's characters."""
    blocks: list[_Block] = []
    lines: list[str] | None = None
    fence = ""
    for line in text.replace("\r\n", "\n").split("\n"):
        if lines is None:
            opening = _OPENING.match(line)
            if opening:
                fence, lines = opening["fence"], []
        elif re.fullmatch(rf"[ \t]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*", line):
            blocks.append(_Block(textwrap.dedent("\n".join(lines)), closed=True))
            lines = None
        else:
            lines.append(line)
    if lines is not None:
        blocks.append(_Block(textwrap.dedent("\n".join(lines)), closed=False))
    return blocks
