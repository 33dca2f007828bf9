"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 passage`, `2 passages`; `plural` where it takes more than an s."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
