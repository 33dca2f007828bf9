"""`kernelevolve problem`: look at a problem before a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import JsonFlag
from cli.output import clean, emit, milliseconds, out
from cli.session import executor, state_of

if TYPE_CHECKING:
    from harness import ProblemFacts


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Check problems.", rich_markup_mode="rich")
    group.command(
        "check", epilog="Example: kernelevolve problem check examples/problems/bias_gelu_layernorm.py"
    )(check)
    app.add_typer(group, name="problem")


def check(
    context: typer.Context,
    problem: Annotated[str, typer.Argument(help="A KernelBench-style Python file.", show_default=False)],
    as_json: JsonFlag = False,
) -> None:
    """Run and trace the reference: interface, operators, eager time, weaknesses.

    Exit code 2 if the problem is invalid.
    """
    from cli.progress import activity
    from harness.problem import load_problem

    reference = load_problem(problem)
    with executor(state_of(context)) as judge, activity("running and tracing the reference"):
        facts = judge.describe(reference.source, reference.name)
    if as_json:
        emit(facts.to_json())
    else:
        _show(facts)


def _show(facts: ProblemFacts) -> None:
    from rich.table import Table

    console = out()
    table = Table("tensor", "role", "shape", "dtype", box=None, header_style="bold")
    roles = (
        ("input", facts.inputs),
        ("parameter", facts.parameters),
        ("buffer", facts.buffers),
        ("output", facts.outputs),
    )
    for role, specs in roles:
        for spec in specs:
            table.add_row(clean(spec.name), role, "x".join(map(str, spec.shape)) or "scalar", spec.dtype)
    console.print(clean(facts.name), style="bold", markup=False)
    console.print(table)
    eager = f"eager {milliseconds(facts.eager_ms)}, moves at least {facts.bytes_min / 1e6:.1f} MB"
    console.print(eager, markup=False)
    if facts.trace_error:
        console.print(
            f"not traceable: {clean(facts.trace_error)}", style="yellow", markup=False, soft_wrap=True
        )
    else:
        operators = " → ".join(node.op for node in facts.nodes if node.op != "getitem")
        console.print(f"operators: {operators}", markup=False, soft_wrap=True)
    if facts.ops or facts.notes:
        said = "; ".join(filter(None, (", ".join(facts.ops), facts.notes)))
        console.print(f"its author says: {clean(said)}", markup=False, soft_wrap=True)
    for flag in facts.flags:
        line = f"flag {flag.get('rule')} ({flag.get('severity')}): {flag.get('detail', '')}"
        console.print(clean(line), style="yellow", markup=False, soft_wrap=True)
