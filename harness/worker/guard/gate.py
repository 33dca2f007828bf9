"""The verdict that a candidate's text alone allows: it is no Python, or cheating on its face."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from harness.worker.guard.inspection import Inspection, inspect_candidate
from harness.worker.model import Status

MANY_FINDINGS = 5  # flagged one by one


@dataclass(frozen=True)
class Gate:
    """`status` is None for a text that may be run. `flags` are `{rule, severity, detail}`."""

    status: Status | None = None
    reason: str = ""
    flags: list[dict[str, str]] = field(default_factory=list)
    inspection: Inspection = field(default_factory=Inspection)


def look_at_text(source: str) -> Gate:
    """Parses the text and applies the static rules; nothing is run."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        where = f" in line {line}" if line else ""
        return Gate("compile_error", f"syntax error{where}: {getattr(error, 'msg', error)}")
    inspection = inspect_candidate(tree)
    if not inspection.complete:
        reason = "guard-incomplete: the file is too large or too deep to be checked"
        return Gate("rejected", reason, inspection=inspection)
    flags = [
        {"rule": f.rule, "severity": f.severity, "detail": f"line {f.line}: {f.detail}"}
        for f in inspection.findings[:MANY_FINDINGS]
    ]
    worst = next((f for f in inspection.findings if f.severity == "reject"), None)
    if worst:
        return Gate("rejected", f"{worst.rule}: {worst.detail} (line {worst.line})", flags, inspection)
    return Gate(flags=flags, inspection=inspection)
