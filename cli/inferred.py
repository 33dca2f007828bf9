"""Scopes that ingestion inferred: shown, and on a terminal confirmed or corrected."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cli.output import clean, note
from kb.wording import counted

if TYPE_CHECKING:
    from kb import KnowledgeBase


def review(kb: KnowledgeBase, inferred: Sequence[dict[str, Any]], *, ask: bool) -> None:
    """Name every inferred scope. Where a person can answer, each may be replaced; that embeds nothing."""
    for entry in inferred:
        several = f" ({counted(entry['documents'], 'document')})" if entry["documents"] > 1 else ""
        note(f"scope {entry['scope']} inferred for {entry['path']}{several}: {entry['why']}", style="yellow")
    if not inferred:
        return
    if not ask or not (sys.stdin.isatty() and sys.stderr.isatty()):
        note("a wrong one is corrected by `kernelevolve kb scope PATH LABEL`")
        return
    import typer

    from kb.upkeep.rescope import correct_scope

    for entry in inferred:
        label = typer.prompt(
            f"scope of {clean(entry['path'])} (Enter keeps it)", default=entry["scope"], err=True
        ).strip()
        if label != entry["scope"]:
            changed = correct_scope(kb, entry["path"], label, inferred_as=entry["scope"])
            are = f"{counted(changed['changed'], 'document')} {'is' if changed['changed'] == 1 else 'are'}"
            note(f"{are} {changed['scope']} now")
