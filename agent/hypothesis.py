"""What a step claims before it is measured, and what the measurement made of the claim."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from agent.graph import SearchNode

Word = Literal["confirmed", "refuted", "open"]
Range = tuple[float, float]

NONE_STATED = "none was stated"
_MAX_TEXT = 600
_LABELS = {
    "change": r"hypothesis",
    "because": r"because|why|reason|rationale",
    "effect": r"predicted(?:\s+effect)?|prediction|expected(?:\s+effect)?|effect",
}
_LABEL = re.compile(
    r"^[\s*#>_-]*(?:" + "|".join(f"(?P<{k}>{v})" for k, v in _LABELS.items()) + r")[*_]*\s*:[*_]*\s*",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^\s*(?:`{3,}|~{3,})")
_CLAUSE = re.compile(r"predict|expect|estimat|should|anticipat", re.IGNORECASE)

_WHY = re.compile(r"[,;]?\s*`?\bbecause\b`?:?\s*", re.IGNORECASE)
_IN_BRACKETS = re.compile(r"\s*\(\s*(?:predict|expect)\w*[^()]*\)\.?", re.IGNORECASE)

_NUMBER = r"(\d+(?:\.\d+)?)"
_TO = r"\s*(?:-|–|—|to|and)\s*"
_OTHER = r"(?!\s*(?:fewer|less|more|wider|larger|smaller|bigger))"  # "2x fewer loads" is no speed
_FACTOR = re.compile(
    rf"{_NUMBER}\s*[x×]?{_TO}{_NUMBER}\s*(?:[x×](?!\d)|times\b){_OTHER}"
    rf"|{_NUMBER}\s*(?:[x×](?!\w)|times\b){_OTHER}"
    rf"|speed-?up\s+(?:of|by|to|around|about)?\s*{_NUMBER}(?!\s*%|\d)",
    re.IGNORECASE,
)
_FROM = re.compile(rf"\bfrom\s+{_NUMBER}\s*[x×]?\s*to\s+{_NUMBER}\s*[x×]", re.IGNORECASE)
_PERCENT = re.compile(rf"(?:{_NUMBER}\s*%?{_TO})?{_NUMBER}\s*(?:%|per ?cent)", re.IGNORECASE)
_SAVES = re.compile(
    r"less time|time by|runtime by|latency by|shorter|lower (?:latency|time|runtime)|time saved|of the time|"
    r"(?:reduc|cut|sav|shav|drop)\w*[^.;]*(?:time|latency)|(?:time|latency)[^.;]*(?:reduc|drop|fall|shrink)",
    re.IGNORECASE,
)
_SPEED = re.compile(r"fast|speed|throughput|gain|improve|time|latency|slow", re.IGNORECASE)
_SLOWER = re.compile(r"\bslow", re.IGNORECASE)
_TWICE = re.compile(r"\btwice\b|\bdoubl\w+|\bhal(?:f|ve|ves|ving)\b", re.IGNORECASE)
_SAME = re.compile(r"no (?:change|effect|difference)|same (?:speed|time)|unchanged|as fast as", re.IGNORECASE)
_CORRECT = re.compile(r"\b(?:correct|compiles?|passes|right results?|agree\w*)\b", re.IGNORECASE)
_FASTER = re.compile(r"fast|speed|less time|shorter|quick|gain|improve", re.IGNORECASE)
# A single number stands for everything between half of the effect and twice of it, on a logarithmic scale.
_SLACK = 2.0
# What counts as no effect.
_STILL = 0.05


@dataclass(frozen=True)
class Hypothesis:
    """What changes, why, and the predicted effect.

    `predicted` is a range of factors: how many times as fast as the starting point (a draft, or a step from
    a candidate that fails: as the reference). None where no size was stated; then `faster` tells whether a
    gain was. `correct`: the prediction is that the candidate is right at all, as in a repair.
    """

    change: str
    because: str = ""
    predicted: Range | None = None
    faster: bool = False
    correct: bool = False

    def __post_init__(self) -> None:
        if self.predicted is not None and not 0 < self.predicted[0] <= self.predicted[1] < math.inf:
            raise ValueError(f"no range of factors: {self.predicted}")

    @classmethod
    def parse(cls, text: str) -> Hypothesis:
        """What a model's answer states: lines `HYPOTHESIS:`, `BECAUSE:` and `PREDICTED:` in any order and
        markup, or one line of prose. Never fails; what was not stated is empty.
        """
        parts = _labelled(text)
        line = parts.get("change", "")
        effect = parts.get("effect") or _prediction_in(line)
        size = predicted_range(effect)
        change, _, reason = _WHY.sub("\0", _IN_BRACKETS.sub("", line), count=1).partition("\0")
        return cls(
            change=change.rstrip(" ,;") or NONE_STATED,
            because=parts.get("because") or reason.strip(),
            predicted=size,
            faster=size is None and bool(_FASTER.search(effect)) and not _SLOWER.search(effect),
            correct=size is None and bool(_CORRECT.search(effect)),
        )

    @property
    def text(self) -> str:
        """One line for people and prompts."""
        parts = [self.change]
        if self.because:
            parts.append(f"because {self.because}")
        if self.predicted is not None:
            parts.append(f"predicted {_told(self.predicted)}")
        return "; ".join(part.rstrip(" .;") for part in parts)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Hypothesis:
        size = data.get("predicted")
        return cls(**{**data, "predicted": (float(size[0]), float(size[1])) if size else None})


@dataclass(frozen=True)
class HypothesisVerdict:
    """`measured` is the factor against the starting point with its 95 % interval; `off` is measured by
    predicted, so that 1 means as predicted and 0.8 a fifth less. `open`: nothing that decides was measured.
    `text` says it in one line and quotes nothing of the candidate.
    """

    word: Word
    text: str
    measured: float | None = None
    interval: Range | None = None
    off: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def verdict_on(hypothesis: Hypothesis, node: SearchNode, start: SearchNode | None) -> HypothesisVerdict:
    """What the node's evaluation says of its hypothesis. `start` is the node it began from, or None."""
    if not node.correct:
        word: Word = "refuted" if hypothesis.correct else "open"
        return HypothesisVerdict(word, f"{word}: the candidate is {node.status}")
    effect = _measured(node, start)
    if hypothesis.correct:
        return HypothesisVerdict("confirmed", "confirmed: the candidate is correct", *(effect or ()))
    if effect is None:
        return HypothesisVerdict("open", "open: no time was measured")
    point, (low, high) = effect
    told = f"measured {point:.2f}x ({low:.2f} to {high:.2f})"
    if hypothesis.predicted is None:
        if not hypothesis.faster:
            return HypothesisVerdict("open", f"open: no effect was predicted, {told}", point, (low, high))
        word = "confirmed" if low > 1 else "refuted" if high <= 1 else "open"
        return HypothesisVerdict(word, f"{word}: predicted a gain, {told}", point, (low, high))
    word = _word(_tolerated(hypothesis.predicted), point, low, high)
    off = point / math.sqrt(hypothesis.predicted[0] * hypothesis.predicted[1])
    text = f"{word}: predicted {_told(hypothesis.predicted)}, {told}, {_distance(off)}"
    return HypothesisVerdict(word, text, point, (low, high), off)


def with_verdict(node: SearchNode, claim: Hypothesis, start: SearchNode | None) -> SearchNode:
    """The judged node with its hypothesis and the verdict on it in its notes."""
    verdict = verdict_on(claim, node, start)
    return replace(node, notes={**node.notes, "hypothesis": claim.to_json(), "verdict": verdict.to_json()})


def predicted_range(text: str) -> Range | None:
    """The factor of speed that a phrase predicts, as a range; None where it states no size.

    Reads factors (`1.3x`, `1.2 to 1.5x`, `2x slower`), percentages (`20 % faster`, `30 % less time`) and
    words (`twice as fast`, `no change`).
    """
    change = _FROM.search(text)
    if change and float(change[1]) > 0:
        factor = float(change[2]) / float(change[1])
        return _ordered(factor, factor)
    factors = _FACTOR.search(text)
    if factors:
        low, high, *alone = factors.groups()
        single = alone[0] or alone[1]
        return _ordered(*((single, single) if single else (low, high)), invert=_slower(text))
    percent = _PERCENT.search(text)
    if percent and _SPEED.search(text):
        high = float(percent[2])
        low = float(percent[1]) if percent[1] else high
        if _SAVES.search(text):
            if not max(low, high) < 100:
                return None
            return _ordered(1 / (1 - low / 100), 1 / (1 - high / 100))
        return _ordered(1 + low / 100, 1 + high / 100, invert=_slower(text))
    if _TWICE.search(text) and _SPEED.search(text):
        return _ordered(2.0, 2.0, invert=_slower(text))
    return (1.0, 1.0) if _SAME.search(text) else None


def _labelled(text: str) -> dict[str, str]:
    """The text after each label, up to the next one, a blank line or a fence; the first of a kind counts.

    What stands in fenced code is no statement, and without a hypothesis there is nothing to explain.
    """
    found: dict[str, str] = {}
    current: str | None = None
    inside = False
    for line in text.splitlines():
        stated = line
        if _FENCE.match(line):
            inside, current = not inside, None
            continue
        label = None if inside else _LABEL.match(line)
        if label:
            kind = str(label.lastgroup)
            current = kind if kind not in found else None
            stated = line[label.end() :]
        elif inside or not line.strip():
            current = None
        if current is not None:
            found[current] = f"{found.get(current, '')} {stated}"
    if "change" not in found:
        return {}
    return {k: " ".join(v.split()).strip("*_ ")[:_MAX_TEXT] for k, v in found.items()}


def _prediction_in(sentence: str) -> str:
    """The part of a sentence from where it begins to predict: numbers before that are no effects."""
    begins = [match.start() for match in _CLAUSE.finditer(sentence)]
    return sentence[begins[-1] :] if begins else ""


def _slower(text: str) -> bool:
    return bool(_SLOWER.search(text))


def _ordered(first: float | str, second: float | str, *, invert: bool = False) -> Range | None:
    low, high = sorted((float(first), float(second)))
    if not 0 < low <= high < math.inf:
        return None
    return (1 / high, 1 / low) if invert else (low, high)


def _measured(node: SearchNode, start: SearchNode | None) -> tuple[float, Range] | None:
    if not node.speedup or node.speedup <= 0:
        return None
    base, base_ci = 1.0, (1.0, 1.0)
    if start is not None and start.correct and start.speedup:
        base, base_ci = start.speedup, start.speedup_ci or (start.speedup, start.speedup)
    low, high = node.speedup_ci or (node.speedup, node.speedup)
    if min(base_ci) <= 0:
        base_ci = (base, base)
    return node.speedup / base, (low / base_ci[1], high / base_ci[0])


def _tolerated(predicted: Range) -> Range:
    low, high = predicted
    if low == high:
        if abs(low - 1) < _STILL:
            return 1 - _STILL, 1 + _STILL
        return min(low ** (1 / _SLACK), low**_SLACK), max(low ** (1 / _SLACK), low**_SLACK)
    return low, high


def _word(wanted: Range, point: float, low: float, high: float) -> Word:
    """More of the predicted gain than was predicted confirms it, too."""
    least, most = wanted
    if least <= point and (point <= most or least >= 1):
        return "confirmed"
    return "refuted" if high < least or low > most else "open"


def _told(predicted: Range) -> str:
    low, high = predicted
    return f"{low:.2f}x" if low == high else f"{low:.2f}x to {high:.2f}x"


def _distance(off: float) -> str:
    if abs(off - 1) < 0.005:
        return "as predicted"
    return f"{abs(off - 1):.0%} {'more' if off > 1 else 'less'} than predicted"
