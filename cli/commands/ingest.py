"""`kernelevolve ingest`: read documents, kernels and traces into the knowledge base."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.options import JsonFlag
from cli.output import emit, out
from cli.progress import ingest_progress, report_failures
from cli.session import knowledge_base, state_of


class Visibility(StrEnum):
    """Who may see a source: everything, or nothing that leaves this machine."""

    shared = "shared"
    local_only = "local-only"


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: kernelevolve ingest docs/ kernels/ --scope nvidia:sm_90")(ingest)


def ingest(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(help="Files and folders.", show_default=False)],
    scope: Annotated[
        str | None, typer.Option(help="Where the content holds: generic, cpu, nvidia, nvidia:sm_90, triton …")
    ] = None,
    visibility: Annotated[
        Visibility | None,
        typer.Option(
            help="local-only: never in a hosted model's prompt, an export or a report. (default: shared)"
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Read files and folders into the knowledge base. Unchanged files are skipped.

    Exit code 1 if a file failed.
    """
    from cli.errors import UsageProblem
    from ingest import ingest_paths

    for path in paths:
        if not path.exists():
            raise UsageProblem(f"no such file or folder: {path}", "check the path")
    with knowledge_base(state_of(context)) as kb, ingest_progress("ingesting") as callback:
        result = ingest_paths(
            kb, paths, scope=scope, visibility=visibility and visibility.value, progress=callback
        )
    if as_json:
        emit(result.to_json())
    else:
        report_failures(result)
        counts = ", ".join(f"{getattr(result, k)} {k}" for k in ("added", "updated", "unchanged", "removed"))
        written = f"{result.chunks} passages in {result.elapsed_s:.1f} s"
        out().print(f"{counts}, {len(result.failed)} failed; {written}", markup=False)
    if result.failed:
        raise typer.Exit(1)
