"""`kernelevolve prompt`: the prompt that a step would send, and where every passage in it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import JsonFlag, TargetOption
from cli.output import clean, emit, err, out
from cli.session import executor, knowledge_base, state_of, target_facts

if TYPE_CHECKING:
    from kb import KnowledgeBase
    from prompts.record import PromptRecord


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: kernelevolve prompt problem.py --target cpu --budget 6000")(prompt)


def prompt(
    context: typer.Context,
    problem: Annotated[str, typer.Argument(help="A KernelBench-style Python file.", show_default=False)],
    target: TargetOption = "cpu",
    parent: Annotated[str | None, typer.Option(help="Continue from this node of an earlier run.")] = None,
    budget: Annotated[int | None, typer.Option(min=500, help="Token budget of the prompt.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the prompt for a step on stdout, and its provenance on stderr. Runs nothing but the reference."""
    from cli.progress import activity
    from harness.problem import load_problem
    from harness.target import get_target
    from prompts import PromptRequest, Synthesizer

    state = state_of(context)
    place = get_target(target)
    reference = load_problem(problem)
    with knowledge_base(state) as kb:
        origin = _origin(kb, parent) if parent else {}
        with executor(state) as judge, activity("running and tracing the reference"):
            facts = judge.describe(reference.source, reference.name)
        optional: dict[str, Any] = {} if budget is None else {"budget_tokens": budget}
        request = PromptRequest(
            problem_source=reference.source,
            facts=facts.to_json(),
            target=target,
            target_facts=target_facts(place),
            **origin,
            **optional,
        )
        record = Synthesizer(kb).synthesize(request)
    if as_json:
        emit(record.to_json())
        return
    out().print(clean(record.prompt), markup=False, highlight=False, soft_wrap=True)
    _show_provenance(record)


def _origin(kb: KnowledgeBase, node_id: str) -> dict[str, Any]:
    """The stored step to continue from: parent, its diagnosis and what had failed in its run by then."""
    from cli.errors import UsageProblem
    from cli.rundata import load_run, run_of

    rows = load_run(kb, run_of(kb, node_id)).candidates
    node = next((row for row in rows if row["node_id"] == node_id), None)
    if node is None:
        raise UsageProblem(f"{node_id} is the problem itself", "leave --parent out for a first draft")
    step = node["step"]
    evaluation = node["evaluation"]
    kept = {k: evaluation.get(k) for k in ("speedup", "speedup_ci", "candidate_ms", "log")}
    failed = [
        {
            "step": row["step"],
            "outcome": row["status"],
            "hypothesis": row["hypothesis"],
            "error": row["evaluation"].get("reason", ""),
        }
        for row in rows
        if row["status"] not in ("correct", "compiled") and row["step"] <= step
    ]
    parent = {k: node[k] for k in ("step", "source", "status", "hypothesis")} | kept
    return {"parent": parent, "diagnosis": node["diagnosis"] or None, "failed": failed, "step": step + 1}


def _show_provenance(record: PromptRecord) -> None:
    from rich.table import Table

    table = Table(
        "slot", "score", "citation", "asked for", box=None, header_style="bold", title_justify="left"
    )
    table.title = f"{record.tokens} tokens from {len(record.provenance)} passages"
    for p in record.provenance:
        table.add_row(p.slot, f"{p.score:.3f}", clean(p.citation), clean(str(p.why.get("asked_for", ""))))
    err().print(table)
    for label, items in (("cut for the budget", record.cut), ("withheld, local-only", record.withheld)):
        if items:
            err().print(clean(f"{label}: {'; '.join(items)}"), style="dim", markup=False, soft_wrap=True)
