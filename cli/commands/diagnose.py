"""`kernelevolve diagnose`: read a profiler's trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.options import JsonFlag
from cli.output import clean, emit, note, out


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: kernelevolve diagnose profile.json")(diagnose)


def diagnose(
    trace: Annotated[Path, typer.Argument(help="A profiler's output file.", show_default=False)],
    as_json: JsonFlag = False,
) -> None:
    """Name each kernel's bottleneck in a profiler trace, with the evidence and what to try.

    Exit code 1 if the trace could be read only in part.
    """
    from cli.errors import UsageProblem
    from ingest.diagnose import diagnose_file

    if not trace.exists():
        raise UsageProblem(f"no such file: {trace}", "check the path")
    result: dict[str, Any] = diagnose_file(trace)
    if as_json:
        emit(result)
    else:
        _show(result)
    if result["errors"]:
        raise typer.Exit(1)


def _show(result: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(
        "kernel", "time", "bottleneck", "evidence", "try", box=None, header_style="bold", show_lines=True
    )
    for kernel in result["kernels"]:
        duration = kernel.get("duration_us")
        table.add_row(
            clean(str(kernel["name"]))[:80],
            "–" if duration is None else f"{duration:.1f} µs",
            str(kernel["bottleneck"]),
            _lines(kernel.get("evidence")),
            _lines(kernel.get("actions")),
        )
    out().print(f"format: {result['format']}", markup=False)
    out().print(table)
    for error in result["errors"]:
        note(f"error: {error}", style="red")


def _lines(value: Any) -> str:
    if value is None:
        return ""
    items = value if isinstance(value, list) else [value]
    return "\n".join(clean(item if isinstance(item, str) else _flat(item)) for item in items)


def _flat(item: Any) -> str:
    return " ".join(f"{k}: {v}" for k, v in item.items()) if isinstance(item, dict) else str(item)
