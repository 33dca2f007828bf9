"""`kernelevolve doctor`: what works on this machine, and what to do about the rest."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.options import JsonFlag
from cli.output import clean, emit, out
from cli.session import state_of


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: kernelevolve doctor --json")(doctor)


def doctor(
    context: typer.Context,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure bandwidth and arithmetic rates now.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check this machine. Exit code 3 if something essential is missing."""
    from cli.checks import FAIL, all_checks
    from cli.progress import activity

    state = state_of(context)
    if calibrate:
        from harness.calibrate import cpu_ceilings, device_ceilings
        from harness.targets.cuda_driver import cuda_names

        cache = state.settings().home / "cache"
        with activity("measuring this CPU"):
            cpu_ceilings(cache, again=True)
        if cuda_names():
            with activity("measuring the GPU"):
                device_ceilings(cache)
    with activity("checking this machine"):
        checks = all_checks(state)
    failed = [c for c in checks if c.status == FAIL]
    if as_json:
        emit({"ok": not failed, "checks": checks})
    else:
        styles = {"ok": "green", "warn": "yellow", "fail": "bold red"}
        width = max(len(c.name) for c in checks)
        for c in checks:
            out().print(f"{c.status:<4}", style=styles[c.status], end=" ", markup=False)
            out().print(
                f"{c.name:<{width}}  {clean(c.detail)}", markup=False, highlight=False, soft_wrap=True
            )
            if c.status != "ok" and c.hint:
                out().print(f"     {'':<{width}}  {clean(c.hint)}", style="dim", markup=False, soft_wrap=True)
        out().print(
            f"{len(failed)} of {len(checks)} checks failed" if failed else "everything essential works"
        )
    if failed:
        raise typer.Exit(3)
