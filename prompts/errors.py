"""What can go wrong while a prompt is synthesised. Every message is one line; `hint` says what to do."""

from __future__ import annotations


class PromptError(Exception):
    """Base of everything that `prompts` raises on purpose."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class BudgetTooSmall(PromptError):
    """The parts that are never cut do not fit into the token budget."""


class TokenizerMissing(PromptError):
    """The bundled tokenizer cannot be found or read."""


class NotReplayable(PromptError):
    """A stored prompt cannot be made again from what it was made from."""
