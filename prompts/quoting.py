"""Foreign text as data: retrieved passages and program output cannot pose as part of the prompt."""

from __future__ import annotations

import hashlib
import re

_TAG = re.compile(r"<(\s*/?\s*)retrieved", re.IGNORECASE)
_BACKTICKS = re.compile(r"`{3,}")
_FENCE = re.compile(r"^ *(`{3,}|~{3,})", re.MULTILINE)
# Unicode categories Cc (but tab and line feed) and Cf: invisible, so a way to hide instructions from people.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0001\U000e0020-\U000e007f]"
)
# What chat templates write between turns. A server that tokenises a prompt as a whole would take one from a
# document for the end of ours.
_CONTROL = re.compile(
    r"<(?=[|｜][^\s<>]{1,64}[|｜]>)"  # <|im_start|>, <|eot_id|>, <｜Assistant｜>
    r"|<(?=/?(?:s|bos|eos|start_of_turn|end_of_turn)>)"
    r"|<(?=</?SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\])",
    re.IGNORECASE,
)


def clean(text: str) -> str:
    """Without control and invisible format characters, with plain line ends, as valid UTF-8."""
    text = re.sub(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]", "\n", text)
    return _INVISIBLE.sub("", text.encode("utf-8", "replace").decode("utf-8"))


def spoken(text: str) -> str:
    """`text` with the control tokens of chat templates broken by a blank, so that they are only words."""
    return _CONTROL.sub(lambda m: m.group() + " ", text)


def data_block(text: str, *, ref: str, citation: str) -> str:
    """`text` between markers that do not occur in it.

    The closing marker carries a digest of the text; whatever looks like a marker inside is defused. Text with
    fences stands in a longer one: none that it leaves open reaches beyond it.
    """
    body = _defused(clean(text).strip("\n"))
    if _FENCE.search(body):
        body = _fenced(body, "")
    mark = _mark(body)
    source = re.sub(r"[\s\"<>]+", " ", clean(citation)).strip()
    return f'<retrieved ref="{ref}" source="{source}" mark="{mark}">\n{body}\n</retrieved {mark}>'


def code_block(text: str, language: str) -> str:
    """`text` in a fence longer than any fence within it."""
    return _fenced(clean(text).strip("\n"), language)


def one_line(text: str, limit: int = 300) -> str:
    """`text` on one line of at most `limit` characters, unable to open a tag or a fence."""
    line = _defused(" ".join(clean(text).split())).replace("```", "'''")
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _defused(text: str) -> str:
    return spoken(_TAG.sub(lambda m: f"[{m.group(1)}retrieved", text))


def _fenced(body: str, language: str) -> str:
    longest = max((len(run) for run in _BACKTICKS.findall(body)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{body}\n{fence}"


def _mark(body: str) -> str:
    salt = 0
    while True:
        mark = hashlib.sha256(f"{salt}:{body}".encode()).hexdigest()[:12]
        if mark not in body:
            return mark
        salt += 1
