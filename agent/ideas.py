"""Optimisations in words: reading them from a model's answer, and choosing some that differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from agent.parsing import Unparseable, without_thinking

_LINE = re.compile(r"^[\s*#>_`\d.)-]*idea\s*\d*[*_`]*\s*[:.)-][*_`]*\s*(?P<text>\S.*)$", re.IGNORECASE)
_WORD = re.compile(r"[a-z0-9]+")
_LIMIT = 500  # characters of an idea; what is longer is an essay
# Share of words in common from which two ideas are the same one told twice.
_SAME = 0.7


def parse_ideas(text: str, limit: int) -> tuple[str, ...]:
    """The first `limit` lines that begin with `IDEA:`, each once. Raises Unparseable when there is none."""
    found = (_LINE.match(line) for line in without_thinking(text).splitlines())
    ideas = dict.fromkeys(" ".join(match["text"].split()).strip("*_ ")[:_LIMIT] for match in found if match)
    ideas.pop("", None)
    if not ideas:
        raise Unparseable("no line begins with IDEA:")
    return tuple(ideas)[:limit]


def pick_diverse(ideas: Sequence[str], count: int, known: Iterable[str] = ()) -> list[str]:
    """Up to `count` ideas, as far apart as can be: the first one, then always the one least like those taken.

    Ideas are compared by the words that they share (Jaccard); one that repeats another or one of `known` is
    never taken. Ties go to the earlier one: a model names what it believes in first.
    """
    taken = [_words(idea) for idea in known]
    picked: list[str] = []
    left = list(ideas)
    # How like the nearest idea of those taken so far each remaining one is.
    nearest = {idea: max((_alike(_words(idea), other) for other in taken), default=0.0) for idea in left}
    while len(picked) < count:
        left = [idea for idea in left if nearest[idea] < _SAME]
        if not left:
            break
        # Known ideas say what is worn; the first pick is still the model's favourite of the others.
        idea = min(left, key=lambda item: nearest[item]) if picked else left[0]
        picked.append(idea)
        left.remove(idea)
        for other in left:
            nearest[other] = max(nearest[other], _alike(_words(idea), _words(other)))
    return picked


def _words(text: str) -> frozenset[str]:
    # Words of one or two letters join sentences; four letters tell "vectorise" from "tile", not from
    # "vectorisation".
    return frozenset(word[:6] for word in _WORD.findall(text.lower()) if len(word) > 2)


def _alike(one: frozenset[str], other: frozenset[str]) -> float:
    union = len(one | other)
    return len(one & other) / union if union else 1.0
