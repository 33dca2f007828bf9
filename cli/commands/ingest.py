"""`kernelevolve ingest`: read documents, kernels and traces into the knowledge base."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from cli.options import JsonFlag
from cli.output import emit, out
from cli.progress import ingest_progress, report_failures
from cli.session import knowledge_base, state_of
from kb.wording import counted


class Visibility(StrEnum):
    """Who may see a source: everything, or nothing that leaves this machine."""

    shared = "shared"
    local_only = "local-only"


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: kernelevolve ingest docs/ kernels.zip --scope nvidia:sm_90")(ingest)


def ingest(
    context: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, folders, archives (zip, tar), patterns ('docs/**/*.md'), run:ID for its kernels.",
            show_default=False,
        ),
    ] = None,
    scope: Annotated[
        str | None, typer.Option(help="Where the content holds: generic, cpu, nvidia, nvidia:sm_90, triton …")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="What documents are that do not say so: hardware, guidance …")
    ] = None,
    language: Annotated[str | None, typer.Option(help="Language that they are about: cuda, hip …")] = None,
    version: Annotated[str | None, typer.Option(help="Version of what they describe.")] = None,
    visibility: Annotated[
        Visibility | None,
        typer.Option(
            help="local-only: never in a hosted model's prompt, an export or a report. (default: shared)"
        ),
    ] = None,
    retry_failed: Annotated[
        bool,
        typer.Option("--retry-failed", help="Only what could not be read before, everywhere or in PATHS."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Take the scopes that were inferred.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Read files and folders into the knowledge base. Unchanged files are skipped.

    A scope that nobody names is inferred from the content, and shown. Exit code 1 if a file failed.
    """
    from cli.errors import UsageProblem
    from cli.inferred import review
    from ingest import ingest_paths

    if not paths and not retry_failed:
        raise UsageProblem("nothing to ingest", "name files or folders, or --retry-failed")
    said = {"kind": kind, "language": language, "version": version}
    with knowledge_base(state_of(context)) as kb:
        with ingest_progress("ingesting") as callback:
            result = ingest_paths(
                kb,
                paths or [],
                scope=scope,
                visibility=visibility and visibility.value,
                defaults={key: value for key, value in said.items() if value},
                retry_failed=retry_failed,
                progress=callback,
            )
        if as_json:
            emit(result.to_json())
        else:
            report_failures(result)
            counts = ", ".join(
                f"{getattr(result, k)} {k}" for k in ("added", "updated", "unchanged", "removed")
            )
            written = f"{counted(result.chunks, 'passage')} in {result.elapsed_s:.1f} s"
            out().print(f"{counts}, {len(result.failed)} failed; {written}", markup=False)
        review(kb, result.inferred, ask=not (yes or as_json))
    if result.failed:
        raise typer.Exit(1)
