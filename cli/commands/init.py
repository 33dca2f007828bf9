"""`kernelevolve init`: create the home folder and read the curated library in."""

from __future__ import annotations

import typer

from cli.options import JsonFlag
from cli.output import emit, out
from cli.progress import ingest_progress
from cli.session import state_of


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
        emit({"home": settings.home, "library": result, "stats": stats})
        return
    out().print(f"knowledge base ready in {settings.home}", markup=False, soft_wrap=True)
    changes = f"{result.added} added, {result.updated} updated, {result.unchanged} unchanged"
    out().print(f"curated library: {changes}; {result.chunks} passages", markup=False, soft_wrap=True)
