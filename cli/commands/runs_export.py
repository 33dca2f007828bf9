"""`kernelevolve runs export`: training data from recorded runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.options import JsonFlag
from cli.output import clean, emit, note, out
from cli.session import open_runs, state_of


class ExportFormat(StrEnum):
    """What the lines are made for; `agent.export.records` describes them."""

    sft = "sft"
    dpo = "dpo"
    grpo = "grpo"
    openai = "openai"
    trl = "trl"


def export(
    context: typer.Context,
    runs: Annotated[
        list[str], typer.Argument(help="Run ids, their first characters, or `last`.", show_default=False)
    ],
    format: Annotated[
        ExportFormat,
        typer.Option(
            help="sft, openai: trajectories that end in a correct kernel; dpo: pairs of siblings; "
            "grpo: siblings with measured rewards; trl: prompts for GRPOTrainer with agent.reward.",
            show_default=False,
        ),
    ],
    to: Annotated[
        Path, typer.Option("--out", "-o", help="The JSON Lines file to write.", show_default=False)
    ],
    margin: Annotated[
        float, typer.Option(min=0.0, help="dpo: how far apart in speedup (0 for a failure) a pair must be.")
    ] = 0.1,
    licence: Annotated[
        list[str] | None,
        typer.Option(
            "--licence",
            "--license",
            help="Only what sources under this licence have shaped (SPDX; may be repeated).",
            show_default=False,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write training data from runs. What local-only passages have shaped never leaves."""
    from agent.export import export_runs
    from cli.errors import UsageProblem

    if to.is_dir():
        raise UsageProblem(f"{to} is a folder", "name the file to write")
    with open_runs(state_of(context)) as kb:
        result = export_runs(kb, runs, format.value, to, margin=margin, licences=licence or ())
    if as_json:
        emit(
            {
                "format": result.format,
                "path": to.resolve(),
                "runs": result.runs,
                "records": result.records,
                "left_out": dict(sorted(result.left_out.items())),
                "licences": dict(sorted(result.licences.items())),
            }
        )
        return
    out().print(str(to), markup=False, highlight=False, soft_wrap=True)
    note(f"{result.records} records from {len(result.runs)} run(s)")
    for title, counts in (("steps left out", result.left_out), ("licences", result.licences)):
        if counts:
            note(f"{title}: " + clean(", ".join(f"{name} {n}" for name, n in sorted(counts.items()))))
