"""Which accelerator a text is about, by counting words that only one family of them has.

Conservative on purpose: a document under the wrong label is hidden from those who need it, a generic one is
seen by everybody. What is concluded is reported, and `kernelevolve kb scope` corrects it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from kb.vocabulary import ARCHITECTURES, WORDS

VERSION = 1  # raise it when the same text would get another label: files are then read again
_CHARACTERS = 200_000  # of the beginning: enough to tell, and a large file costs no more
_REPEATS = 10  # a word counts this often at most: a name in every page header says no more than that
_WORDS, _DISTINCT = 4, 3  # that are found at least
_SHARE = 0.8  # of everything found, so that comparisons and porting guides stay generic
_DENSITY = 3 / 1000  # of the words of the text, so that a passing mention decides nothing


@dataclass(frozen=True)
class Guess:
    """A scope with the words that speak for it."""

    scope: str
    why: str


def infer_scope(text: str, name: str = "") -> Guess | None:
    """What `text` (of a file called `name`, or with this title) is about; None: nothing in particular.

    The architecture becomes part of the label only where the name says it, and says only one.
    """
    sample = text[:_CHARACTERS]
    found = {label: _count(pattern, sample) for label, pattern in WORDS.items()}
    totals = {label: counts.total() for label, counts in found.items()}
    best = max(totals, key=lambda label: totals[label])
    counts = found[best]
    if totals[best] < _WORDS or len(counts) < _DISTINCT:
        return None
    if totals[best] < _SHARE * sum(totals.values()) or totals[best] < _DENSITY * len(sample.split()):
        return None
    words = ", ".join(f"{word} {n}×" for word, n in counts.most_common(3))
    architectures = {m.lower() for m in ARCHITECTURES[best].findall(name)} if best in ARCHITECTURES else set()
    if len(architectures) == 1:
        architecture = architectures.pop()
        prefix = "sm_" if best == "nvidia" else ""
        return Guess(f"{best}:{prefix}{architecture}", f"{words}, and its name")
    return Guess(best, words)


def _count(pattern: re.Pattern[str], text: str) -> Counter[str]:
    counts = Counter(" ".join(m.group().lower().split()) for m in pattern.finditer(text))
    return Counter({word: min(n, _REPEATS) for word, n in counts.items()})
