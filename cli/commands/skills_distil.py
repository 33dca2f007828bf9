"""`kernelevolve skills distil` and `skills verify`: winners become skills, skills are measured again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import PROBLEM_HELP, ExecutorOption, JsonFlag
from cli.output import clean, emit, note, out, speedup
from cli.session import executor, knowledge_base, state_of

if TYPE_CHECKING:
    from collections.abc import Mapping

TimingOption = Annotated[
    float, typer.Option("--timing", min=0.1, help="Seconds of measuring for each problem and size.")
]


def distil_winner(
    context: typer.Context,
    reference: Annotated[
        str,
        typer.Argument(
            metavar="RUN|NODE", help="A run, whose best node is taken, or a node; `last`.", show_default=False
        ),
    ],
    timing: TimingOption = 4.0,
    where: ExecutorOption = "local",
    as_json: JsonFlag = False,
) -> None:
    """Make a skill of a winner: it is measured again on fresh seeds and at other sizes first.

    A pattern that a skill has already strengthens that one's evidence. Exit code 1: it was not admitted.
    """
    state = state_of(context)
    with knowledge_base(state) as kb, executor(state, where) as judge:
        from agent.distil import distil, mark_stale

        found = distil(kb, judge, reference, timing_s=timing, tell=note)
        mark_stale(kb)
    if as_json:
        emit(
            {
                "node_id": found.node_id,
                "outcome": found.outcome,
                "reason": found.reason,
                "skill": found.name,
                "state": found.state or None,
                "root": found.root,
                "evidence": [_brief(record) for record in found.evidence],
            }
        )
    else:
        title = f"{found.outcome}: {found.name} ({found.state})" if found.name else found.outcome
        out().print(clean(title), style="bold", markup=False, highlight=False, soft_wrap=True)
        out().print(clean(found.reason), markup=False, highlight=False, soft_wrap=True)
        _show(found.evidence)
        if found.root is not None:
            out().print(str(found.root), markup=False, highlight=False, soft_wrap=True)
    if found.name is None:
        raise typer.Exit(1)


def verify_skills(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]…", help="Skills; without: those with stale evidence.", show_default=False
        ),
    ] = None,
    problem: Annotated[
        list[str] | None,
        typer.Option("--problem", help="Measure on this, too (may be repeated). " + PROBLEM_HELP),
    ] = None,
    timing: TimingOption = 4.0,
    where: ExecutorOption = "local",
    as_json: JsonFlag = False,
) -> None:
    """Measure skills again wherever their evidence is from; what is new takes the old one's place.

    Exit code 1: a measurement was no win.
    """
    from harness.problem import load_problem

    state = state_of(context)
    home = state.settings().home
    others = [load_problem(spec, home / "cache") for spec in problem or ()]
    results = []
    with knowledge_base(state) as kb:
        from agent.distil import mark_stale, verify

        mark_stale(kb)
        chosen = names or [s.name for s in kb.skills() if any(r.get("stale") for r in s.evidence)]
        if chosen:
            with executor(state, where) as judge:
                results = [verify(kb, judge, name, others, timing_s=timing, tell=note) for name in chosen]
    if as_json:
        emit(
            {
                "skills": [
                    {
                        "name": r.name,
                        "state": r.state,
                        "holds": r.holds,
                        "stale": r.stale,
                        "measured": [_brief(record) for record in r.measured],
                    }
                    for r in results
                ]
            }
        )
    elif not results:
        note("no evidence is stale")
    else:
        for r in results:
            title = f"{r.name}: {'holds' if r.holds else 'does not hold everywhere'} ({r.state})"
            out().print(clean(title), style="bold", markup=False, highlight=False, soft_wrap=True)
            _show(r.measured)
    if not all(r.holds for r in results):
        raise typer.Exit(1)


def _brief(record: Mapping[str, Any]) -> dict[str, Any]:
    keys = (
        "problem",
        "size",
        "shapes",
        "status",
        "reason",
        "speedup",
        "speedup_ci",
        "device",
        "stale",
        "date",
    )
    return {key: record.get(key) for key in keys}


def _show(records: list[dict[str, Any]]) -> None:
    for record in records:
        correct = record["status"] == "correct"
        number = speedup(record.get("speedup"), record.get("speedup_ci")) if correct else record["status"]
        where = f"{record['problem']}, {record['size']} {record['shapes']}"
        line = f"  {where}: {number} {record.get('reason') or ''}"
        out().print(clean(line.rstrip()), markup=False, highlight=False, soft_wrap=True)
