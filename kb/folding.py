"""Hits that say nothing new give up their place: the same text in two documents, or in versions of a page.

The store keeps both; a result list names the second where the first stands (`why.also_at`). A passage is
folded only into one above it that has all of its words, so that nothing is lost: one with a number, a name or
a word of its own (another limit, another function) stays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from kb.lexical import STOP_WORDS
from kb.records import Hit

_WORD = re.compile(r"\w+(?:[.:]+\w+)*")
# Numbers of versions differ between versions of a page that say the same.
_VERSION = re.compile(r"\bv\d+(?:\.\w+)*|\b(?:version|release)\s+\d[\w.]*|\b\d+\.\d+\.\d+\b", re.IGNORECASE)
_RUN = 4  # words in a row that are compared
_COVERED = 0.8  # of these runs that the other passage has, too
# These stand for things (a skill, a kernel with its measurements) that are not the same for reading alike.
_THINGS = ("skill", "kernel")


@dataclass
class _Kept:
    hit: Hit
    words: frozenset[str]
    also_at: list[str] = field(default_factory=list)


def fold(hits: Iterable[Hit], k: int) -> list[Hit]:
    """The first `k` of `hits` that are not covered by one before them, ranked anew.

    No more of `hits` is consumed than that takes. Local-only passages and others are never folded into each
    other: one of the two may have to be left out later.
    """
    kept: list[_Kept] = []
    places: dict[tuple[str, ...], set[int]] = {}  # run of words -> indexes into `kept`
    for hit in hits if k > 0 else ():
        words = _words(hit.text)
        runs = set(_runs(words))
        content = frozenset(words) - STOP_WORDS
        over = _cover(hit, content, runs, kept, places)
        if over is not None:
            over.also_at += [_elsewhere(hit, over.hit), *hit.why.get("also_at", [])]
            continue
        for run in runs:
            places.setdefault(run, set()).add(len(kept))
        kept.append(_Kept(hit, content, list(hit.why.get("also_at", []))))
        if len(kept) == k:
            break
    return [
        replace(one.hit, rank=rank, why=one.hit.why | _named(one)) for rank, one in enumerate(kept, start=1)
    ]


def _cover(
    hit: Hit,
    content: frozenset[str],
    runs: set[tuple[str, ...]],
    kept: list[_Kept],
    places: dict[tuple[str, ...], set[int]],
) -> _Kept | None:
    if hit.kind in _THINGS or not runs:
        return None
    shared = Counter(index for run in runs for index in places.get(run, ()))
    for index in sorted(shared):
        other = kept[index]
        if (
            shared[index] >= _COVERED * len(runs)
            and content <= other.words
            and (hit.kind, hit.local_only) == (other.hit.kind, other.hit.local_only)
        ):
            return other
    return None


def _named(kept: _Kept) -> dict[str, list[str]]:
    elsewhere = dict.fromkeys(place for place in kept.also_at if place != kept.hit.citation)
    return {"also_at": list(elsewhere)} if elsewhere else {}


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(_VERSION.sub(" ", text))]


def _runs(words: list[str]) -> Iterator[tuple[str, ...]]:
    """All runs of words; a shorter text is one run."""
    for start in range(max(1, len(words) - _RUN + 1) if words else 0):
        yield tuple(words[start : start + _RUN])


def _elsewhere(hit: Hit, first: Hit) -> str:
    return hit.citation if hit.source == first.source else f"{hit.source}: {hit.citation}"
