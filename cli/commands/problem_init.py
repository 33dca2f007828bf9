"""`kernelevolve problem init`: a problem from a user's own module and example inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.errors import UsageProblem
from cli.options import JsonFlag
from cli.output import clean, emit, note, out
from cli.session import state_of


def register(group: typer.Typer) -> None:
    group.command(
        "init",
        epilog="Example: kernelevolve problem init mypkg.layers:RMSNorm --init dim=1024 "
        "--input 'x=float32[8,1024]' -o rmsnorm.py",
    )(init)


def init(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(help="package.module:Class or :function (not with --script).", show_default=False),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option(help="A Python file that sets `module` and `inputs` instead.", show_default=False),
    ] = None,
    init_values: Annotated[
        list[str] | None,
        typer.Option("--init", metavar="NAME=VALUE", help="An argument of the constructor, in Python."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=VALUE",
            help="An argument of forward: float32[8,1024], int64[8,128]:0..50257, or Python with torch.",
        ),
    ] = None,
    at: Annotated[
        str, typer.Option(metavar="NAME", help="Capture this submodule, with what it is called with.")
    ] = "",
    to: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("problem.py"),
    notes: Annotated[str, typer.Option(help="What people and models should know; goes into META.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Capture a problem from your own module: a self-contained file that was seen to do the same.

    Your module is run, in a process of its own on this machine. The file holds its source with what it needs
    from your files, draws inputs like the examples, and is only written if a new process that loads it gets
    the same outputs.
    """
    from cli.progress import activity
    from harness.problem_capture.process import CaptureFailed, Job, capture_apart

    if (target is None) == (script is None):
        raise UsageProblem(
            "give either package.module:Class or --script FILE", "kernelevolve problem init --help"
        )
    if script is not None and (init_values or inputs):
        raise UsageProblem("--init and --input do not go with --script", "the script makes module and inputs")
    job = Job(
        path=str(to),
        target=target or "",
        script=str(script or ""),
        init=init_values or [],
        inputs=inputs or [],
        at=at,
        notes=notes,
        overwrite=force,
    )
    try:
        with activity("capturing the module"):
            made = capture_apart(job)
    except CaptureFailed as failure:
        if state_of(context).verbose:
            note(failure.details)
        raise
    if as_json:
        emit(made)
        return
    out().print(f"{clean(made['name'])} is captured in {clean(made['path'])}", markup=False, soft_wrap=True)
    if made["packages"]:
        out().print(f"it imports {', '.join(made['packages'])}", style="yellow", markup=False)
    out().print(f"next: kernelevolve problem check {clean(made['path'])}", markup=False, soft_wrap=True)
