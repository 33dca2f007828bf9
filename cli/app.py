"""The command tree. Command modules are light: what is slow to import waits for the command that needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.commands import (
    diagnose,
    doctor,
    evaluate,
    exchange,
    ingest,
    init,
    kb,
    problem,
    prompt,
    query,
    runs,
    search,
    skills,
    worker,
)
from cli.logs import configure
from cli.session import AppState

app = typer.Typer(
    name="kernelevolve",
    help="Search for fast kernels, every step fed by retrieval from documents, past kernels and traces.",
    epilog="Start with: kernelevolve doctor, then kernelevolve search my_problem.py",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"kernelevolve {version('kernelevolve')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    home: Annotated[
        Path | None,
        typer.Option(help="Where everything is stored.", envvar="KERNELEVOLVE_HOME", show_envvar=True),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Search for fast kernels, every step fed by retrieval from documents, past kernels and traces."""
    del version
    configure(verbose=verbose)
    context.obj = AppState(home=home, verbose=verbose)


for module in (
    init,
    doctor,
    ingest,
    query,
    kb,
    skills,
    prompt,
    problem,
    evaluate,
    search,
    exchange,
    runs,
    diagnose,
    worker,
):
    module.register(app)
