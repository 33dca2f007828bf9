"""`kernelevolve problem`: make problems, look at them and check what they are worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands import problem_init
from cli.options import PROBLEM_HELP, JsonFlag
from cli.output import clean, emit, milliseconds, note, out, show_flags
from cli.session import executor, state_of

if TYPE_CHECKING:
    from harness import ProblemFacts
    from harness.problem_checks import CheckedExecutor


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Make, show and check problems.", rich_markup_mode="rich")
    problem_init.register(group)
    group.command("check", epilog="Example: kernelevolve problem check examples/problems")(check)
    group.command("show", epilog="Example: kernelevolve problem show aten:softmax")(show)
    group.command("list", epilog="Example: kernelevolve problem list aten --like norm")(list_problems)
    app.add_typer(group, name="problem")


def check(
    context: typer.Context,
    problems: Annotated[
        list[str],
        typer.Argument(
            help=PROBLEM_HELP + " Or several: a folder, a pattern, kernelbench:1/* or kernelbench:1/3-7.",
            show_default=False,
        ),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Run the references through the tests of candidates, and name the problems that are weak.

    Weak is a problem where something passes that does no work (zeros, an input, the output for other inputs),
    whose inputs or weights do not matter, or whose output is constant or random. What is found is kept and
    shown with every speedup on the problem. Exit code 0: none is weak; 1: some are; 2: some are invalid.
    """
    from harness.errors import ProblemError
    from harness.problem import expand, load_problem
    from harness.problem_checks import weaknesses

    specs = expand(problems)
    with executor(state_of(context)) as judge:
        if len(specs) == 1:
            weak = _check_one(judge, load_problem(specs[0], judge.cache_dir), as_json=as_json)
            raise typer.Exit(1 if weak else 0)
        rows: list[dict[str, Any]] = []
        for i, spec in enumerate(specs, 1):
            row: dict[str, Any] = {"problem": spec, "weak": False, "findings": [], "error": None}
            try:
                reference = load_problem(spec, judge.cache_dir)
                row["findings"] = judge.check(reference.source, reference.name)
                row["weak"] = bool(weaknesses(_as_flags(row["findings"])))
            except ProblemError as error:
                row["error"] = str(error)
            rows.append(row)
            note(f"{i}/{len(specs)} {spec}: {_in_short(row)}")
    counts = {
        "weak": sum(row["weak"] for row in rows),
        "invalid": sum(row["error"] is not None for row in rows),
    }
    if as_json:
        emit({"problems": rows, **counts})
    else:
        _show_table(rows)
    raise typer.Exit(2 if counts["invalid"] else 1 if counts["weak"] else 0)


def _check_one(judge: CheckedExecutor, reference: Any, *, as_json: bool) -> bool:
    from cli.progress import activity
    from harness.problem_checks import weaknesses

    with activity("running and tracing the reference"):
        facts = judge.describe(reference.source, reference.name)
    with activity("looking for what would pass for its output"):
        findings = judge.check(reference.source, reference.name)
    weak = weaknesses(_as_flags(findings))
    if as_json:
        emit({**facts.to_json(), "findings": findings, "weak": bool(weak)})
        return bool(weak)
    _show(facts)
    show_flags(out(), findings)
    if weak:
        out().print(f"weak: {'; '.join(weak)}", style="bold yellow", markup=False, soft_wrap=True)
    else:
        out().print("nothing passes for its output that does no work", style="bold green", markup=False)
    return bool(weak)


def _as_flags(findings: list[dict[str, str]]) -> list[dict[str, str]]:
    from harness.problem_checks import with_findings

    return with_findings([], findings)


def show(
    context: typer.Context,
    problem: Annotated[str, typer.Argument(help=PROBLEM_HELP, show_default=False)],
    as_json: JsonFlag = False,
) -> None:
    """Print a problem's source."""
    from harness.problem import load_problem

    reference = load_problem(problem, state_of(context).settings().home / "cache")
    if as_json:
        emit({"name": reference.name, "path": reference.path, "source": reference.source})
    else:
        out().print(clean(reference.source.rstrip()), markup=False, highlight=False, soft_wrap=True)


def list_problems(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="aten, kernelbench, or a folder.", show_default=False)],
    like: Annotated[str, typer.Option(help="Only names that contain this.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """List the problems of a source by the names that other commands take."""
    from harness.errors import ProblemError
    from harness.problem import expand

    if source == "aten":
        from harness.opinfo import operators

        listed = operators(state_of(context).settings().home / "cache")
        names = [f"aten:{op['name']}" + (f"/{op['variant']}" if op["variant"] else "") for op in listed]
    elif source == "kernelbench":
        names = []
        for level in (1, 2, 3, 4):
            try:
                names += expand([f"kernelbench:{level}/*"])
            except ProblemError:
                if level == 1:
                    raise
    else:
        names = expand([source])
    names = [name for name in names if like in name]
    if as_json:
        emit({"problems": names})
    else:
        for name in names:
            out().print(clean(name), markup=False, highlight=False, soft_wrap=True)


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


def _in_short(row: dict[str, Any]) -> str:
    if row["error"] is not None:
        return f"invalid: {row['error']}"
    rules = ", ".join(f["rule"] for f in row["findings"] if f["severity"] == "warning")
    return f"weak: {rules}" if row["weak"] else "sound"


def _show_table(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table("problem", "", "found", box=None, header_style="bold")
    styles = {"invalid": "red", "weak": "yellow", "sound": "green"}
    for row in rows:
        kind = _in_short(row).partition(":")[0]
        found = row["error"] or "; ".join(f"{f['rule']} ({f['severity']})" for f in row["findings"])
        table.add_row(clean(row["problem"]), kind, clean(found), style=styles[kind])
    out().print(table)
