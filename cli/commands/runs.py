"""`kernelevolve runs`: what earlier searches found."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.runs_export import export
from cli.options import JsonFlag
from cli.output import clean, emit, jsonable, out, speedup
from cli.session import open_runs, state_of

if TYPE_CHECKING:
    from rich.table import Table

    from agent.models.usage import ModelUsage

RunArgument = Annotated[
    str, typer.Argument(help="A run id, its first characters, or `last`.", show_default=False)
]


class ReportFormat(StrEnum):
    """A self-contained page, or text for a pull request."""

    html = "html"
    md = "md"


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="List, show and report runs.", rich_markup_mode="rich")
    group.command("list", epilog="Example: kernelevolve runs list --json")(list_runs)
    group.command("show", epilog="Example: kernelevolve runs show RUN")(show_run)
    group.command("report", epilog="Example: kernelevolve runs report RUN --format md --out report.md")(
        report_run
    )
    group.command(
        "export", epilog="Example: kernelevolve runs export RUN --format dpo --margin 0.2 --out pairs.jsonl"
    )(export)
    group.command("replay", epilog="Example: kernelevolve runs replay last")(replay_run)
    app.add_typer(group, name="runs")


def list_runs(context: typer.Context, as_json: JsonFlag = False) -> None:
    """List the runs, newest first."""
    with open_runs(state_of(context)) as kb:
        from agent.store import RunStore

        runs = RunStore(kb).list_runs()
    if as_json:
        keys = (
            "run_id",
            "problem",
            "target",
            "state",
            "steps",
            "best_speedup",
            "created",
            "generator",
            "policy",
        )
        emit({"runs": [{key: getattr(run, key) for key in keys} for run in runs]})
        return
    if not runs:
        out().print("no runs yet; start one: kernelevolve search my_problem.py", markup=False)
        return
    from rich.table import Table

    table = Table(
        "run", "problem", "target", "state", "steps", "best", "created", box=None, header_style="bold"
    )
    for r in runs:
        created = r.created.strftime("%Y-%m-%d %H:%M")
        table.add_row(
            r.run_id, clean(r.problem), r.target, r.state, str(r.steps), speedup(r.best_speedup), created
        )
    out().print(table)


def show_run(context: typer.Context, run: RunArgument, as_json: JsonFlag = False) -> None:
    """Show one run and its steps."""
    from cli.rundata import load_run
    from cli.verdict import problem_weaknesses, verdict

    with open_runs(state_of(context)) as kb:
        data = load_run(kb, run)
    info, rows, best = data.info, data.candidates, data.best
    if as_json:
        keys = (
            "node_id",
            "parent_id",
            "status",
            "speedup",
            "speedup_ci",
            "step",
            "generator",
            "hypothesis",
            "verdict",
            "compiler_made",
        )
        nodes = [{key: row[key] for key in keys} for row in rows]
        emit(
            {
                **jsonable(info),
                "nodes": nodes,
                "skipped": data.skipped,
                "models": jsonable(data.models),
                "problem_weaknesses": problem_weaknesses(rows),
            }
        )
        return
    from rich.table import Table

    console = out()
    stop = f" ({info.stop_reason})" if info.stop_reason else ""
    console.print(f"{info.run_id}: {clean(info.problem)} on {info.target}", style="bold", markup=False)
    facts = f"{info.state}{clean(stop)}, generator {info.generator}, policy {info.policy}, seed {info.seed}"
    console.print(facts, markup=False, highlight=False, soft_wrap=True)
    console.print(verdict(rows, best).text, markup=False, highlight=False, soft_wrap=True)
    table = Table(
        "step", "from", "verdict", "speedup", "generator", "hypothesis", box=None, header_style="bold"
    )
    steps = {row["node_id"]: str(row["step"]) for row in rows}
    for row in rows:
        table.add_row(
            str(row["step"]),
            steps.get(row["parent_id"], "–"),
            row["status"],
            speedup(row["speedup"], row["speedup_ci"]),
            row["generator"],
            clean(row["hypothesis"]),
            style="bold" if row is best else None,
        )
    console.print(table)
    if any(m.tokens_in or m.tokens_out or not m.metered for m in data.models) or len(data.models) > 1:
        console.print(_models(data.models))


def _models(models: list[ModelUsage]) -> Table:
    from rich.table import Table

    titles = ("generator", "steps", "correct", "best", "tokens in", "tokens out", "cost")
    table = Table(*titles, box=None, header_style="bold")
    for m in models:
        tokens = [f"{count:,}" if m.metered or count else "unknown" for count in (m.tokens_in, m.tokens_out)]
        cost = "unknown" if m.cost_usd is None else f"${m.cost_usd:.4f}"
        table.add_row(
            clean(m.generator), str(m.steps), str(m.correct), speedup(m.best_speedup), *tokens, cost
        )
    return table


def report_run(
    context: typer.Context,
    run: RunArgument,
    format: Annotated[
        ReportFormat, typer.Option(help="html: one self-contained file; md: for a pull request.")
    ] = (ReportFormat.html),
    to: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write it.", show_default="HOME/runs/RUN/report.FORMAT"),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a run's report to one file that needs no network. Local-only passages are left out."""
    from cli.report import collect, report_path, write

    with open_runs(state_of(context)) as kb:
        from agent.store import RunStore

        run_id = RunStore(kb).resolve(run)
        path = write(collect(kb, run_id), to or report_path(kb, run_id, format.value), format.value)
    if as_json:
        emit({"run_id": run_id, "format": format.value, "path": path.resolve()})
    else:
        out().print(str(path), markup=False, highlight=False, soft_wrap=True)


def replay_run(context: typer.Context, run: RunArgument, as_json: JsonFlag = False) -> None:
    """Make every decision of a run again from its log, in the recorded order of completion.

    Nothing is generated, judged or stored. Exit code 1: something does not follow from what went before it.
    """
    with open_runs(state_of(context)) as kb:
        from agent.recorded import replay

        report = replay(kb, run)
    if as_json:
        emit(report.to_json())
    else:
        for item in report.divergences:
            line = f"step {item.step}: {item.what} is {item.recorded} in the log, {item.found} when replayed"
            out().print(clean(line), markup=False, highlight=False, soft_wrap=True)
        verdict = "differs from its log" if report.divergences else "follows from its log"
        made = f"{report.asked} decisions made again, {report.told} results in order of completion"
        out().print(f"run {report.run_id} {verdict}: {made}", markup=False, soft_wrap=True)
    if report.divergences:
        raise typer.Exit(1)
