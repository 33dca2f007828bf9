"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


def complete_target(incomplete: str) -> list[str]:
    from harness.target import list_targets

    names = [t if isinstance(t, str) else t.name for t in list_targets()]
    return [name for name in names if name.startswith(incomplete)]


class ProfileChoice(StrEnum):
    """How closely a candidate is looked at."""

    none = "none"
    static = "static"
    light = "light"
    deep = "deep"


PROBLEM_HELP = "A KernelBench-style Python file, kernelbench:LEVEL/ID or aten:OP."

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
TargetOption = Annotated[
    str,
    typer.Option("--target", "-t", help="Where the kernel runs.", autocompletion=complete_target),
]
OptionalTarget = Annotated[
    str | None,
    typer.Option("--target", "-t", help="Only what holds on this target.", autocompletion=complete_target),
]
ExecutorOption = Annotated[
    str,
    typer.Option(
        "--executor", metavar="WHERE", help="local, or spool:DIR for the workers of a shared folder."
    ),
]
