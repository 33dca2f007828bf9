"""What a question that names no target is probably about: a preference, never a filter.

Two kinds of evidence, the first where there is any: names of products, vendors and languages, or of a stored
scope; else words that occur in the documents of one scope and hardly in others. What the preference leaves
outside keeps its place among the candidates, at a lower score.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kb.scope import GENERIC, visible_scopes
from kb.vocabulary import named

# Added to the score of what is preferred (`kb/fusion.py`): a clear answer from elsewhere leads by more.
_NAMED, _TAUGHT = 6.0, 3.0
_SHARE = 0.9  # of a word's occurrences that one view must have for the word to speak for it
_CHUNKS = 3  # that have the word at least: a rare slip decides nothing
# Added to each scope's size, as well: else a word in a few chunks of a tiny scope would seem to be its own.
_SMOOTHING = 500
_LEAD = 2.0  # times the evidence of the second view


@dataclass(frozen=True)
class Focus:
    """The stored `scopes` that are preferred, and the `words` of the question that say so: as names
    (`named`), or by where the store has them.
    """

    scopes: frozenset[str]
    words: tuple[str, ...]
    named: bool

    @property
    def advantage(self) -> float:
        """What is added to the score of passages in `scopes`."""
        return _NAMED if self.named else _TAUGHT

    def to_json(self) -> dict[str, Any]:
        return {
            "scopes": sorted(self.scopes),
            "words": list(self.words),
            "because": "they name it" if self.named else "the store has them nowhere else",
        }


def infer(text: str, spread: Mapping[str, Mapping[str, int]], sizes: Mapping[str, int]) -> Focus | None:
    """None where the question says nothing, contradicts itself, or there is nothing to tell apart.

    `sizes` is the number of chunks by stored scope, `spread` for each term of the question the number of
    chunks that have it, by scope.
    """
    stored = frozenset(scope for scope, chunks in sizes.items() if chunks)
    if len(stored - {GENERIC}) < 2:
        return None
    focus = _by_name(text, stored) or _by_words(spread, sizes, stored)
    return None if focus is None or focus.scopes == stored else focus


def _by_name(text: str, stored: frozenset[str]) -> Focus | None:
    """A question about several things (porting, comparing) prefers all that is about one of them."""
    scopes: set[str] = set()
    words: dict[str, None] = {}
    for label, word in [*named(text), *_stored_names(text, stored)]:
        seen = _seen(label, stored)
        if seen - {GENERIC}:
            scopes |= seen
            words.setdefault(word)
    return Focus(frozenset(scopes), tuple(words), named=True) if scopes else None


def _seen(label: str, stored: frozenset[str]) -> frozenset[str]:
    """What `label` sees as a target; a whole family also sees what is about one of its models."""
    models = {scope for scope in stored if scope.partition(":")[0] == label}
    return (visible_scopes(label) & stored) | models


def _stored_names(text: str, stored: frozenset[str]) -> list[tuple[str, str]]:
    """(label, word) of stored labels, of their families and of what follows the colon, however separated."""
    found = []
    for label in sorted(stored - {GENERIC, "cpu"}):  # every question about a GPU may speak of the CPU
        family, _, model = label.partition(":")
        for name, meant in ((label, label), (family, family), (model, label)):
            parts = re.findall(r"[^\W_]+", name)
            if len("".join(parts)) < 3:
                continue
            pattern = r"(?<!\w)" + r"[\W_]{0,2}".join(map(re.escape, parts)) + r"(?!\w)"
            match = re.search(pattern, text, re.IGNORECASE)
            if match is not None:
                found.append((meant, match.group()))
    return found


def _by_words(
    spread: Mapping[str, Mapping[str, int]], sizes: Mapping[str, int], stored: frozenset[str]
) -> Focus | None:
    """The view whose own words weigh most, where it leads clearly. A word weighs what its rarity says."""
    views = _views(stored)
    total = sum(sizes.values())
    weight: dict[frozenset[str], float] = {}
    words: dict[frozenset[str], list[str]] = {}
    for word, chunks in spread.items():
        found = sum(chunks.values())
        if found < _CHUNKS:
            continue
        own = next((v for v in views if _own(chunks, sizes, v)), None)
        if own is not None:
            weight[own] = weight.get(own, 0.0) + math.log(1 + total / found)
            words.setdefault(own, []).append(word)
    if not weight:
        return None
    first, *rest = sorted(weight, key=lambda view: -weight[view])
    if rest and weight[first] < _LEAD * weight[rest[0]]:
        return None
    return Focus(first | (stored & {GENERIC}), tuple(words[first]), named=False)


def _own(chunks: Mapping[str, int], sizes: Mapping[str, int], view: frozenset[str]) -> bool:
    """Whether the word is hardly found outside `view`, as a share of each scope's chunks."""
    for smoothing in (0, _SMOOTHING):
        rates = {scope: n / (sizes[scope] + smoothing) for scope, n in chunks.items() if n}
        if sum(rate for scope, rate in rates.items() if scope in view) < _SHARE * sum(rates.values()):
            return False
    return True


def _views(stored: frozenset[str]) -> Sequence[frozenset[str]]:
    """What each stored label and each family sees of what is not generic; the narrowest first."""
    labels = stored - {GENERIC}
    views = {_seen(name, stored) & labels for label in labels for name in (label, label.partition(":")[0])}
    views.discard(labels)
    return sorted(views, key=lambda view: (len(view), sorted(view)))
