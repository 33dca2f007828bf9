"""`kernelevolve init`: create the home folder and read the curated library in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cli.options import JsonFlag
from cli.output import emit, out
from cli.progress import ingest_progress, report_failures
from cli.session import state_of
from kb.wording import counted

if TYPE_CHECKING:
    from ingest import IngestReport


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: kernelevolve --home ./ke init")(init)


def init(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Create the home folder and read the curated library into it. Safe to repeat."""
    from ingest import ingest_library
    from kb import KnowledgeBase

    settings = state_of(context).settings()
    with KnowledgeBase.open(settings) as kb:
        with ingest_progress("reading the curated library") as callback:
            result = ingest_library(kb, progress=callback)
        stats = kb.stats()
    if as_json:
        emit({"home": settings.home, "library": result.to_json(), "stats": stats})
    else:
        _show(settings.home, result, stats)
    if result.failed:
        raise typer.Exit(1)


def _show(home: Path, result: IngestReport, stats: dict[str, Any]) -> None:
    out().print(f"knowledge base ready in {home}", markup=False, soft_wrap=True)
    changes = ", ".join(
        f"{n} {what}" for what in ("added", "updated", "removed") if (n := getattr(result, what))
    )
    counts = stats["counts"]
    documents = stats["documents_by_state"].get("embedded", 0)
    library = ", ".join(
        (
            counted(documents, "document"),
            counted(counts["chunk"], "passage"),
            counted(counts["skill"], "skill"),
        )
    )
    out().print(f"{library} ({changes or 'nothing changed'})", markup=False, soft_wrap=True)
    report_failures(result)
