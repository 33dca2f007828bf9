"""`kernelevolve worker`: the judge for other machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.errors import UsageProblem
from cli.options import JsonFlag
from cli.output import emit, note, out
from cli.session import executor, state_of

_worker = typer.Typer(invoke_without_command=True)


def register(app: typer.Typer) -> None:
    app.add_typer(_worker, name="worker")


@_worker.callback(epilog="Example: kernelevolve worker --spool /shared/jobs --idle-exit 600")
def work(
    context: typer.Context,
    spool: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder that the jobs come from.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when no job waits.")] = False,
    idle_exit: Annotated[
        float | None, typer.Option(min=0, metavar="S", help="End after so many seconds without a job.")
    ] = None,
    require_sandbox: Annotated[
        bool, typer.Option("--require-sandbox", help="Fail rather than run with a weaker sandbox.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Judge candidates for other machines: what `--executor spool:DIR` puts into a folder.

    Several workers may share one folder. A job whose worker dies is given to another.
    """
    if context.invoked_subcommand is not None:
        return
    if spool is None:
        raise UsageProblem("name a folder with --spool DIR", "kernelevolve worker --help")
    from harness.spool import Spool
    from harness.spool_worker import SpoolWorker, summary

    queue = Spool(spool)
    with executor(state_of(context), require_sandbox=require_sandbox) as judge:
        worker = SpoolWorker(queue, judge, lambda name, answer, _: note(f"{name}: {summary(answer)}"))
        jobs = worker.run(0.0 if once else idle_exit)
    if as_json:
        emit({"jobs": jobs})
    else:
        out().print(f"{jobs} jobs answered", markup=False)


@_worker.command(epilog="Example: kernelevolve worker pack worker.pyz && scp worker.pyz gpu-box:")
def pack(
    path: Annotated[Path, typer.Argument(help="The file to write.", show_default=False)],
    as_json: JsonFlag = False,
) -> None:
    """Pack the judge into one file that needs only Python, torch and Triton.

    On the other machine: python worker.pyz doctor, then python worker.pyz eval PROBLEM CANDIDATE --json.
    """
    from harness.pack import pack as write

    size = write(path)
    if as_json:
        emit({"path": path.absolute(), "bytes": size})
    else:
        out().print(f"{path}, {size >> 10} KiB: run it with `python {path} --help`", markup=False)
