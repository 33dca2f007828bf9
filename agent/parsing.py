"""Finding the candidate in a model's answer: a whole file, or edits of the file it started from."""

from __future__ import annotations

import ast
import html
import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.edits import EditFailed, Edits, apply_edits, find_edits

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")
_THOUGHTS = "think|thinking|thought|reasoning|analysis|scratchpad"
_THINKING = re.compile(rf"[<\[]({_THOUGHTS})[>\]].*?[<\[]/\1[>\]]", re.DOTALL | re.IGNORECASE)
_UNENDED = re.compile(
    r"^[ \t]*[<\[](think|thinking|reasoning)[>\]].*\Z", re.DOTALL | re.MULTILINE | re.IGNORECASE
)
_THOUGHT = re.compile(rf"\A.*?[<\[]/(?:{_THOUGHTS})[>\]]", re.DOTALL | re.IGNORECASE)
_TAGGED = re.compile(
    r"[<\[](?P<tag>code|python|file|answer|solution|kernel|candidate)\b[^>\]\n]*[>\]]"
    r"[ \t]*(?:<!\[CDATA\[)?(?P<text>.*?)(?:\]\]>)?[ \t]*[<\[]/(?P=tag)[>\]]",
    re.DOTALL | re.IGNORECASE,
)
# Fences that do not stand alone in their lines.
_INLINE = re.compile(r"(`{3,}|~{3,})[ \t]*[\w.+-]*[ \t]*\n(?P<text>.*?)\1", re.DOTALL)
_HYPOTHESIS = re.compile(r"^[\s*#>_-]*hypothesis[*_]*\s*:[*_]*\s*(.+)$", re.IGNORECASE | re.MULTILINE)
_HEADING = re.compile(r"^#+[ \t]*hypothesis[ \t:*_]*\n+[ \t]*(.+)$", re.IGNORECASE | re.MULTILINE)
_QUOTED = re.compile(r"^[ \t]*>[ ]?", re.MULTILINE)
_BEGINS = re.compile(r"^(import |from |class |def |@|#|\"\"\"|''')", re.MULTILINE)
# What pages and chats make of spaces and quotation marks.
_TYPESET = {
    **dict.fromkeys((0xA0, 0x2007, 0x202F), " "),
    **dict.fromkeys((0x200B, 0x200C, 0x2060, 0xFEFF), ""),
    **dict.fromkeys((0x201C, 0x201D), '"'),
    **dict.fromkeys((0x2018, 0x2019), "'"),
}
_TRIES = 12  # ends of a block, or beginnings of a bare file, that are tried
CLASS = "ModelNew"


class Unparseable(Exception):
    """The answer holds no usable candidate; the message tells the model what is wrong."""


@dataclass(frozen=True)
class Parsed:
    """`edited` tells whether the answer was edits of the file that it started from."""

    source: str
    hypothesis: str
    edited: bool = False


def parse_answer(text: str, *, truncated: bool = False, base: str | None = None) -> Parsed:
    """The candidate: the last block that is valid Python and defines `ModelNew`, or edits of `base`,
    whichever comes last.

    A block is fenced, tagged (`<code>`), quoted, a value of a JSON object, or the bare text. An unclosed
    fence counts only when the answer was not cut off. Raises Unparseable.
    """
    text = without_thinking(text.replace("\r\n", "\n"))
    hypothesis, text = _unwrapped(text)
    hypothesis = hypothesis or _hypothesis(text)
    problem = ""
    edits = find_edits(text)
    found, where, problem = _whole_file(text, truncated=truncated)
    if edits is not None and (found is None or where < edits.end):
        try:
            return Parsed(_edited(edits, base, truncated=truncated), hypothesis, edited=True)
        except Unparseable:
            if found is None:
                raise  # else they only show what is new in the file
    if found is not None:
        return Parsed(found, hypothesis)
    if truncated:
        problem = "the answer was cut off before the file was complete"
    raise Unparseable(problem or f"no fenced Python file that defines class {CLASS}")


def _whole_file(text: str, *, truncated: bool) -> tuple[str | None, int, str]:
    """(source, its last line in the answer, what is wrong with the best that there is)."""
    found, where, problem = _fenced(text, truncated=truncated)
    if found is not None:
        return found, where, problem
    for other in _unfenced(text, truncated=truncated):
        source, complaint = _checked(other)
        if source is not None:
            return source, len(text), ""
        problem = problem or complaint
    return None, 0, problem


def _fenced(text: str, *, truncated: bool) -> tuple[str | None, int, str]:
    """The last usable fenced block. Where its first closing fence leaves half a file (a docstring may have
    fences of its own), a later one is its end.
    """
    lines = text.split("\n")
    found: tuple[str, int] | None = None
    problem, number = "", 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        if opening is None:
            number += 1
            continue
        ends = list(_ends(lines, number, opening["fence"]))
        if not truncated:
            ends.append(len(lines))
        accepted = None
        for tried, end in enumerate(end for end in ends if CLASS in "\n".join(lines[number + 1 : end])):
            source, complaint = _checked("\n".join(lines[number + 1 : end]))
            if source is not None:
                accepted = found = (source, end)
                break
            # The latest block as it was meant says best what is wrong.
            problem = complaint if end == ends[0] or not problem else problem
            if tried == _TRIES or not complaint.startswith(_INVALID):
                break
        number = accepted[1] if accepted else number + 1
    return (*found, "") if found else (None, 0, problem)


def _ends(lines: Sequence[str], opening: int, fence: str) -> Iterator[int]:
    """Where a fence may close, as CommonMark has it: at least as many of the opening's characters."""
    closing = re.compile(rf"[ \t]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*")
    return (n for n in range(opening + 1, len(lines)) if closing.fullmatch(lines[n]))


def _unfenced(text: str, *, truncated: bool) -> Iterator[str]:
    """What else may be the file: tagged or quoted text, or the bare answer with or without what leads it."""
    yield from reversed([match["text"] for match in _TAGGED.finditer(text)])
    yield from reversed([match["text"] for match in _INLINE.finditer(text)])
    if _QUOTED.search(text):
        unquoted = _QUOTED.sub("", text)
        source, _, _ = _fenced(unquoted, truncated=truncated)
        if source is not None:
            yield source
    if not truncated:
        yield text
        yield from (text[m.start() :] for m, _ in zip(_BEGINS.finditer(text), range(_TRIES), strict=False))


_INVALID = "the file is not valid Python"


def _checked(source: str) -> tuple[str | None, str]:
    """(the file as it is to be used, "") or (None, what is wrong; empty where it is no candidate at all)."""
    if CLASS not in source:
        return None, ""
    source = textwrap.dedent(source)
    complaint = ""
    # Pages and chats change spaces and escape brackets on the way.
    for variant in dict.fromkeys((source, source.translate(_TYPESET), html.unescape(source))):
        try:
            tree = ast.parse(variant)
        except (SyntaxError, ValueError) as error:
            where = f" in line {error.lineno}" if isinstance(error, SyntaxError) else ""
            complaint = complaint or f"{_INVALID}: {getattr(error, 'msg', error)}{where}"
            continue
        except (RecursionError, MemoryError):
            return None, "the file is nested too deeply"
        if any(isinstance(node, ast.ClassDef) and node.name == CLASS for node in tree.body):
            return variant.strip("\n") + "\n", ""
        return None, f"no top-level class {CLASS}"
    return None, complaint


def _edited(edits: Edits, base: str | None, *, truncated: bool) -> str:
    if len(edits.edits) == 1 and not edits.edits[0].search:  # as for a new file
        whole, _ = _checked("\n".join(edits.edits[0].replace))
        if whole is not None:
            return whole
    if not base:
        raise Unparseable("there is no starting point to edit: a whole file is needed")
    if edits.open:
        how = "the answer was cut off" if truncated else "a search/replace block is not closed"
        raise Unparseable(f"{how}, so that its edits are not complete")
    try:
        edited = apply_edits(base, edits.edits)
    except EditFailed as error:
        raise Unparseable(f"{error} (edits apply to the starting point)") from error
    source, complaint = _checked(edited)
    if source is None:
        raise Unparseable(f"with the edits, {complaint or f'there is no class {CLASS}'}")
    return source


def without_thinking(text: str) -> str:
    """What a model thought aloud is no answer; some servers keep only the closing tag of it."""
    kept = _UNENDED.sub("", _THINKING.sub("", text))
    after = _THOUGHT.sub("", kept)
    return kept if CLASS in kept and CLASS not in after else after


def _unwrapped(text: str) -> tuple[str, str]:
    """(hypothesis, text) of an answer that is one JSON object, in a fence or not; else ("", the text)."""
    body = re.sub(r"\A```(?:json)?[ \t]*\n(.*)\n```\Z", r"\1", text.strip(), flags=re.DOTALL)
    if not body.startswith("{"):
        return "", text
    try:
        value = json.loads(body, strict=False)  # with line breaks as they are, too
    except (ValueError, RecursionError):
        return "", text
    texts = [t for t in _strings(value) if CLASS in t or find_edits(t) is not None]
    said = {str(key).lower(): entry for key, entry in value.items()}.get("hypothesis")
    return (" ".join(said.split()) if isinstance(said, str) else ""), (texts[-1] if texts else text)


def _strings(value: object) -> Iterator[str]:
    """Every text in a JSON value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _hypothesis(text: str) -> str:
    match = _HYPOTHESIS.search(text) or _HEADING.search(text)
    return " ".join(match.group(1).split()).strip("*_ ") if match else "none was stated"
