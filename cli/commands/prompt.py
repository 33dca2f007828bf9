"""`kernelevolve prompt`: the prompt that a step would send, and where every passage in it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import PROBLEM_HELP, JsonFlag, TargetOption
from cli.output import clean, emit, err, out
from cli.session import executor, knowledge_base, state_of

if TYPE_CHECKING:
    from kb import KnowledgeBase
    from prompts.record import PromptRecord


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: kernelevolve prompt problem.py --target cpu --budget 6000")(prompt)


def prompt(
    context: typer.Context,
    problem: Annotated[str, typer.Argument(help=PROBLEM_HELP, show_default=False)],
    target: TargetOption = "cpu",
    parent: Annotated[str | None, typer.Option(help="Continue from this node of an earlier run.")] = None,
    budget: Annotated[int | None, typer.Option(min=500, help="Token budget of the prompt.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the prompt for a step on stdout, and its provenance on stderr. Runs nothing but the reference."""
    from agent.place import Place
    from cli.progress import activity
    from harness.problem import load_problem
    from prompts import PromptRequest, Synthesizer

    state = state_of(context)
    place = Place.of(target, state.settings().home / "cache")
    reference = load_problem(problem, state.settings().home / "cache")
    with knowledge_base(state) as kb:
        origin = _origin(kb, parent) if parent else {}
        with executor(state) as judge, activity("running and tracing the reference"):
            facts = judge.describe(reference.source, reference.name)
        optional: dict[str, Any] = {} if budget is None else {"budget_tokens": budget}
        request = PromptRequest(
            problem_source=reference.source,
            facts=facts.to_json(),
            target=target,
            target_facts=dict(place.facts),
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
    """The stored step to continue from: parent, its diagnosis and what had not helped in its lineage."""
    from agent.memory import failed_attempts, parent_context
    from agent.store import RunStore
    from cli.errors import UsageProblem
    from cli.rundata import run_of, skipped_steps

    store = RunStore(kb)
    run = store.load(run_of(kb, node_id))
    node = run.graph.node(node_id)
    if node.is_root:
        raise UsageProblem(f"{node_id} is the problem itself", "leave --parent out for a first draft")
    return {
        "parent": parent_context(node, store.source(node)),
        "diagnosis": node.diagnosis,
        "failed": failed_attempts(run.graph, skipped_steps(run), node_id, "lineage"),
    }


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
