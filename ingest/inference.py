"""Which accelerator a text is about, by counting words that only one family of them has.

Conservative on purpose: a document under the wrong label is hidden from those who need it, a generic one is
seen by everybody. What is concluded is reported, and `kernelevolve kb scope` corrects it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath

from kb.vocabulary import ARCHITECTURES, PRODUCTS, WORDS

VERSION = 2  # raise it when the same text would get another label: files are then read again
_CHARACTERS = 200_000  # of the beginning: enough to tell, and a large file costs no more
_REPEATS = 10  # a word counts this often at most: a name in every page header says no more than that
_WORDS, _DISTINCT = 4, 3  # that are found at least
_SHARE = 0.8  # of everything found, so that comparisons and porting guides stay generic
_DENSITY = 3 / 1000  # of the words of the text, so that a passing mention decides nothing
# Names that mean an architecture wherever they stand; of those of products some mean other things, too.
_ARCHITECTURES = ARCHITECTURES | {
    "aws-neuron": re.compile(r"(?<![A-Za-z0-9])(trn[123]|inf2)(?![A-Za-z0-9])", re.IGNORECASE)
}
_PRODUCT = "the product "
_WORDS_OF = {"tpu": "tpu/gpu-pallas"}
_VENDORS = ("nvidia", "amd", "aws-neuron", "tpu/gpu-pallas", "tenstorrent")


@dataclass(frozen=True)
class Guess:
    """A scope with the words that speak for it."""

    scope: str
    why: str


def infer_scope(text: str, name: str = "", path: str = "") -> Guess | None:
    """What `text` (of a file called `name`, or with this title, at `path`) is about; None: nothing in
    particular.

    The architecture becomes part of the label only where the name or a folder says it, and says only one. A
    text of which that is all that is known has its label, unless it has more words of another vendor.
    """
    sample = text[:_CHARACTERS]
    found = {label: _count(pattern, sample) for label, pattern in WORDS.items()}
    totals = {label: counts.total() for label, counts in found.items()}
    best = max(totals, key=lambda label: totals[label])
    counts = found[best]
    words = ", ".join(f"{word} {n}×" for word, n in counts.most_common(3))
    enough = totals[best] >= _WORDS and len(counts) >= _DISTINCT
    share = totals[best] >= _SHARE * sum(totals.values())
    decided = enough and share and totals[best] >= _DENSITY * len(sample.split())
    said = _said(name, path)
    if said is not None:
        family = said.scope.partition(":")[0]
        own = totals.get(_WORDS_OF.get(family, family), 0)
        rivals = [totals[label] for label in _VENDORS if label != _WORDS_OF.get(family, family)]
        if own >= max(rivals) and (own or not said.why.startswith(_PRODUCT)):
            return Guess(said.scope, f"{words}, and its name" if decided else said.why)
    return Guess(best, words) if decided else None


def _said(name: str, path: str) -> Guess | None:
    """The architecture in the file's name or title, else in the nearest folder that has one."""
    *folders, file = PurePosixPath(path).parts or ("",)
    for part in (f"{file} {name}", *reversed(folders)):
        labels = {
            f"{family}:{'sm_' if family == 'nvidia' else ''}{m.lower()}": m
            for family, pattern in _ARCHITECTURES.items()
            for m in pattern.findall(part)
        }
        if len(labels) == 1:
            return Guess(next(iter(labels)), f"{part.strip()!r} in its path or title")
        if labels:
            return None
        whole = (file if part.startswith(file) and file else part).partition(".")[0]
        products = [label for label, pattern in PRODUCTS.items() if pattern.fullmatch(whole)]
        if len(products) == 1:
            return Guess(products[0], f"{_PRODUCT}{whole!r} in its path")
    return None


def _count(pattern: re.Pattern[str], text: str) -> Counter[str]:
    counts = Counter(" ".join(m.group().lower().split()) for m in pattern.finditer(text))
    return Counter({word: min(n, _REPEATS) for word, n in counts.items()})
