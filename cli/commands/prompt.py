"""`kernelevolve prompt`: the prompt that a step would send, and where every passage in it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import PROBLEM_HELP, JsonFlag, TargetOption
from cli.output import clean, emit, err, note
from cli.session import executor, knowledge_base, state_of, stored

if TYPE_CHECKING:
    from kb import KnowledgeBase
    from prompts.record import PromptRecord


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: kernelevolve prompt problem.py --target cpu --budget 6000")(prompt)


def prompt(
    context: typer.Context,
    problem: Annotated[str | None, typer.Argument(help=PROBLEM_HELP, show_default=False)] = None,
    target: TargetOption = "cpu",
    parent: Annotated[str | None, typer.Option(help="Continue from this node of an earlier run.")] = None,
    budget: Annotated[int | None, typer.Option(min=500, help="Token budget of the prompt.")] = None,
    model: Annotated[
        str,
        typer.Option(help="Count tokens as this model (`provider:model`) does, where that is known here."),
    ] = "",
    ideas: Annotated[
        int, typer.Option(min=0, max=50, help="Ask for so many optimisation ideas instead of a candidate.")
    ] = 0,
    replay: Annotated[
        str | None,
        typer.Option(help="Make the prompt of this node again from what it was made from, byte for byte."),
    ] = None,
    as_sent: Annotated[
        bool, typer.Option("--as-sent", help="With --replay: the stored text itself, made again or not.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print the prompt for a step on stdout, and its provenance on stderr. Runs nothing but the reference."""
    from cli.errors import UsageProblem

    if replay is not None:
        if problem is not None or parent is not None or budget is not None or ideas:
            raise UsageProblem("--replay takes no problem and no options of a new prompt", "leave them out")
        _replay(context, replay, as_sent=as_sent, as_json=as_json)
        return
    if problem is None or as_sent:
        what = "--as-sent goes with --replay NODE" if as_sent else "which problem?"
        raise UsageProblem(what, "kernelevolve prompt problem.py, or kernelevolve prompt --replay NODE")
    from agent.place import Place
    from cli.progress import activity
    from harness.problem import load_problem
    from prompts import PromptRequest, Synthesizer

    state = state_of(context)
    place = Place.of(target, state.settings().home / "cache")
    reference = load_problem(problem, state.settings().home / "cache")
    with knowledge_base(state, wait=False) as kb:
        origin = _origin(kb, parent) if parent else {}
        with executor(state) as judge, activity("running and tracing the reference"):
            facts = judge.describe(reference.source, reference.name)
        optional: dict[str, Any] = {} if budget is None else {"budget_tokens": budget}
        request = PromptRequest(
            problem_source=reference.source,
            facts=facts.to_json(),
            target=target,
            target_facts=dict(place.facts),
            model=model,
            want_ideas=ideas,
            **origin,
            **optional,
        )
        record = Synthesizer(kb).synthesize(request)
    if as_json:
        emit(record.to_json())
        return
    typer.echo(record.prompt, nl=False)  # as it is: a console would expand its tabs
    _show_provenance(record)


def _replay(context: typer.Context, node_id: str, *, as_sent: bool, as_json: bool) -> None:
    """The prompt of a stored node, made again; raises NotReplayable with what has changed since."""
    from prompts.errors import NotReplayable
    from prompts.replay import replay

    with stored(state_of(context)) as kb:
        payload = _step_of(kb, node_id)
        digest = str(payload["prompt_sha"])
        if as_sent:
            text, facts = kb.blobs.text(digest), {"as_sent": True}
        else:
            if not payload.get("replay"):
                raise NotReplayable(
                    f"the step of {node_id} was stored without what its prompt was made from",
                    "--as-sent shows the text that is kept",
                )
            made = replay(kb, payload["replay"], digest)
            text = made.prompt
            facts = {**asdict(made), "knowledge_unchanged": made.unchanged}
    if as_json:
        emit({"node_id": node_id, **facts, "prompt": text, "digest": digest})
        return
    typer.echo(text, nl=False)
    if not as_sent:
        since = "unchanged" if made.unchanged else "changed since, all passages are still there"
        note(
            f"the same, byte for byte: {digest[:12]}, {made.passages} passages; the knowledge base is {since}"
        )


def _step_of(kb: KnowledgeBase, node_id: str) -> Mapping[str, Any]:
    """The event of the step that led to a node."""
    from sqlmodel import col, select

    from cli.errors import UsageProblem
    from cli.rundata import run_of
    from kb.tables import Event

    with kb.session() as session:
        events = session.exec(
            select(Event.payload)
            .where(Event.run_id == run_of(kb, node_id), Event.kind == "step")
            .order_by(col(Event.seq))
        )
        found = next((payload for payload in events if payload.get("node_id") == node_id), None)
    if found is None:
        raise UsageProblem(f"{node_id} is the problem itself and has no prompt", "name a candidate")
    return found


def _origin(kb: KnowledgeBase, node_id: str) -> dict[str, Any]:
    """The stored step to continue from: parent, its diagnosis, and what has and has not helped around it."""
    from agent.memory import failed_attempts, lessons, parent_context
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
        "depth": len(run.graph.lineage(node_id)),
        "diagnosis": node.diagnosis,
        "failed": failed_attempts(run.graph, skipped_steps(run), node_id, "both"),
        "lessons": lessons(run.graph, node_id, "both"),
    }


def _show_provenance(record: PromptRecord) -> None:
    from rich.table import Table

    table = Table(
        "slot", "score", "citation", "asked for", box=None, header_style="bold", title_justify="left"
    )
    passages = f"{len(record.provenance)} passages, level: {record.level}"
    table.title = f"{record.tokens} tokens ({record.tokenizer}), {passages}"
    for p in record.provenance:
        table.add_row(p.slot, f"{p.score:.3f}", clean(p.citation), clean(str(p.why.get("asked_for", ""))))
    err().print(table)
    deferred = [f"{name} ({count} documents)" for name, count in record.deferred.items()]
    for label, items in (
        ("deferred to steps about other bottlenecks", deferred),
        ("cut for the budget", record.cut),
        ("withheld, local-only", record.withheld),
    ):
        if items:
            err().print(clean(f"{label}: {'; '.join(items)}"), style="dim", markup=False, soft_wrap=True)
