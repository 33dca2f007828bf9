"""Scripts without blanks between words: each character is a term, and questions ask for pairs of them."""

from __future__ import annotations

import re

# Chinese, Japanese, Korean (whose particles stick to words); Thai, Lao, Burmese, Khmer.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_ONE = re.compile(f"([{_UNSPACED}])")
_RUN = re.compile(f"([{_UNSPACED}]+)")


def spaced(text: str) -> str:
    """`text` with blanks around each character of such a script, as it is indexed and asked for."""
    return text if text.isascii() else _ONE.sub(r" \1 ", text)


def pieces(word: str) -> list[str]:
    """A word's parts: what is of other scripts whole, of these the pairs of neighbours, a lone one alone."""
    if word.isascii():
        return [word]
    found: list[str] = []
    for i, part in enumerate(_RUN.split(word)):
        if i % 2 and len(part) > 1:
            found += (part[j : j + 2] for j in range(len(part) - 1))
        elif part.strip("_.:"):
            found.append(part.strip("_.:"))
    return found
