"""The static rules by name, and what one of them finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["reject", "warning"]


@dataclass(frozen=True)
class Rule:
    severity: Severity
    explanation: str


RULES = {
    "patches-library": Rule("reject", "replaces a part of torch, Triton, Python or the harness"),
    "adds-to-library": Rule("warning", "adds a name of its own to a library"),
    "replaces-module": Rule("reject", "puts something else in the place of a loaded module"),
    "inspects-harness": Rule("reject", "looks through the process for what is not its own"),
    "uses-reference": Rule("reject", "takes the reference, or its inputs, instead of computing"),
    "hidden-code": Rule("reject", "runs code that cannot be read in the file"),
    "opaque-code": Rule("warning", "runs text that the file does not show"),
    "global-hook": Rule("reject", "hooks into every module of the process"),
    "global-mode": Rule("reject", "enters a mode for all of torch and never leaves it"),
    "overrides-operator": Rule("reject", "replaces torch's operators in the dispatcher"),
    "schedules-code": Rule("reject", "has code run between other people's statements"),
    "phase-sniffing": Rule("reject", "what forward computes depends on who seems to be calling"),
}


@dataclass(frozen=True)
class Finding:
    rule: str
    detail: str
    line: int

    @property
    def severity(self) -> Severity:
        return RULES[self.rule].severity
