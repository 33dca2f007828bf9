"""Scope labels and targets as people type them: which are known, and what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from kb.errors import LabelUnknown
from kb.scope import FAMILIES, GENERIC, normalise
from kb.vocabulary import ARCHITECTURES, PRODUCTS, named

KNOWN = frozenset({GENERIC, *FAMILIES, *PRODUCTS}.union(*FAMILIES.values()))
_SIMILARITY = 0.7  # of two labels, by difflib, from which one may be the other mistyped


def close_to(label: str, known: Iterable[str]) -> list[str]:
    """Up to three labels that may have been meant by `label`, the most likely first: what names a product or
    a tool stands for its scope (`h100`, `rocm`, `cuda:sm_90`), everything else is compared letter by letter.
    """
    label = normalise(label)
    meant = sorted({scope for scope, _ in named(label)}, key=lambda scope: (":" not in scope, scope))
    alike = difflib.get_close_matches(label, sorted(known), n=3, cutoff=_SIMILARITY)
    return list(dict.fromkeys([*meant[:1], *alike]))[:3]


def unfamiliar(label: str, stored: Iterable[str], registered: Iterable[str] = ()) -> list[str] | None:
    """None for a label that is known, stored or a `registered` target's name; else those close to it."""
    label, known = normalise(label), KNOWN | {normalise(s) for s in (*stored, *registered)}
    return None if label in known else [c for c in close_to(label, known) if c != label]


def check_target(target: str, stored: Iterable[str], registered: Iterable[str] = ()) -> str | None:
    """A sentence about a target whose vendor is known but which is not; None for one that is.

    Raises LabelUnknown for an empty target and one of a vendor that neither the `stored` labels nor the
    `registered` targets have: such a question would find what is generic alone.
    """
    if not target.strip():
        raise LabelUnknown("the target is empty", "leave it out to ask about everything")
    stored, registered = {normalise(s) for s in stored}, {normalise(s) for s in registered}
    close = unfamiliar(target, stored, registered)
    if close is None:
        return None
    label = normalise(target)
    family, _, architecture = label.partition(":")
    meant = f"did you mean {' or '.join(close)}?" if close else ""
    families = {known.partition(":")[0] for known in KNOWN | stored | registered}
    if family not in families:
        hint = meant or f"one of {', '.join(sorted((stored | registered) - {GENERIC}) or sorted(FAMILIES))}"
        raise LabelUnknown(f"no vendor or language is known as {family!r}, and nothing stored has it", hint)
    form = ARCHITECTURES.get(family)
    if form is not None and form.fullmatch(architecture) and architecture.startswith(("sm_", "gfx")):
        return f"nothing is about {label} alone; what holds for {family} is searched"
    return f"{label} is not known, what holds for {family} is searched" + (f"; {meant}" if meant else "")


def check_kinds(kinds: Iterable[str], known: Iterable[str]) -> None:
    """Raises LabelUnknown for a kind that no document can have: nothing would be found."""
    known = sorted(known)
    for kind in kinds:
        if kind not in known:
            close = difflib.get_close_matches(kind, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}"
            raise LabelUnknown(f"unknown kind {kind!r}", hint)


def confirm_new(label: str, stored: Iterable[str]) -> str | None:
    """A sentence about a label that is used for the first time; None for a known one."""
    close = unfamiliar(label, stored)
    if close is None:
        return None
    sentence = f"scope {normalise(label)} is new here"
    return f"{sentence}; did you mean {' or '.join(close)}?" if close else sentence
