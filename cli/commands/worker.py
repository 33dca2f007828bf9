"""`kernelevolve worker`: the judge for other machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.options import JsonFlag
from cli.output import emit, out

_worker = typer.Typer(no_args_is_help=True, help="Judge candidates for other machines.")


def register(app: typer.Typer) -> None:
    app.add_typer(_worker, name="worker")


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
