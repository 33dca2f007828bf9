"""`kernelevolve query`: ask the knowledge base."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import JsonFlag, OptionalTarget
from cli.output import clean, emit, note, out
from cli.session import checked_target, knowledge_base, state_of
from kb.wording import counted

if TYPE_CHECKING:
    from cli.diagnoses import Diagnosed
    from kb import KnowledgeBase
    from kb.records import SubQuery
    from kb.retrieval import QueryResult


def register(app: typer.Typer) -> None:
    app.command(epilog='Example: kernelevolve query "avoid bank conflicts" --target nvidia:sm_90 -k 5')(query)


def query(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="What to look for, in words.", show_default=False)] = "",
    target: OptionalTarget = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", help="Only this kind (skill, guidance, hardware …); repeatable."),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, max=100, help="How many passages.")] = 10,
    diagnosis: Annotated[
        Path | None,
        typer.Option(help="Ask about a diagnosis: what `diagnose --json` wrote, or a profiler's trace."),
    ] = None,
    no_rerank: Annotated[
        bool, typer.Option("--no-rerank", help="Without the chat model or cross-encoder of the settings.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Find passages in the knowledge base, each with an exact citation."""
    from cli.diagnoses import read_diagnosis
    from cli.errors import UsageProblem
    from ingest.loaders.markdown import KINDS
    from kb.diagnoses import sub_queries
    from kb.labels import check_kinds
    from kb.questions import storable
    from kb.records import SubQuery

    check_kinds(kinds or (), KINDS)
    diagnosed = None if diagnosis is None else read_diagnosis(diagnosis)
    asked = bool(storable(text).strip())
    if not asked and diagnosed is None:
        raise UsageProblem("the query is empty", 'ask in words: kernelevolve query "fast softmax"')
    questions = [SubQuery(text, "the question")] if asked else []
    if diagnosed is not None:
        questions += sub_queries(diagnosed.diagnosis)
        if not questions:
            raise UsageProblem(f"{diagnosis} has nothing to ask about", "add a question in words")
        target = target or diagnosed.target or None
    with knowledge_base(state_of(context), wait=False) as kb:
        notes = checked_target(kb, target)
        result = ask(kb, questions, target=target, kinds=kinds or None, k=k, plainly=no_rerank)
        notes += kb.notices
    if as_json:
        about = {"diagnosis": diagnosed.to_json()} if diagnosed else {}
        emit(result.to_json() | about | ({"notes": notes} if notes else {}))
        return
    if diagnosed is not None:
        _say_what_of(diagnosed)
    _show(result)


def ask(
    kb: KnowledgeBase,
    questions: Sequence[SubQuery],
    *,
    target: str | None,
    kinds: Sequence[str] | None,
    k: int,
    plainly: bool,
) -> QueryResult:
    """With the configured models unless `plainly`; they are not even opened then."""
    from kb.asking import refine

    refiner = None if plainly else kb.refiner
    if refiner is not None:
        return refine(kb, refiner, questions, target=target, kinds=kinds, k=k)
    if len(questions) == 1:
        return kb.query(questions[0].text, target=target, kinds=kinds, k=k)
    return kb.query_many(questions, target=target, kinds=kinds, k=k)


def _say_what_of(diagnosed: Diagnosed) -> None:
    of = f" of {diagnosed.kernel}" if diagnosed.kernel else ""
    note(f"asking about {diagnosed.diagnosis.get('bottleneck', 'the diagnosis')}{of}")
    if diagnosed.others:
        one = diagnosed.others == 1
        note(
            f"{counted(diagnosed.others, 'other kernel')} in the file "
            f"{'takes less time and is' if one else 'take less time and are'} not asked about"
        )


def _show(result: QueryResult) -> None:
    console = out()
    if result.inferred is not None:
        scopes, words = sorted(result.inferred.scopes), result.inferred.words
        note(f"no target given: {', '.join(scopes)} preferred because of {', '.join(words)}")
    for key, what in (("rewritten_by", "asked in other words by"), ("reranked_by", "reranked by")):
        if key in result.refined:
            note(f"{what} {result.refined[key]}")
    for hit in result.hits:
        console.print(f"{hit.rank}. {clean(hit.citation)}", style="bold", markup=False, soft_wrap=True)
        about = f"   {hit.kind}, score {hit.score:.3f}, kb open {hit.chunk_id[:12]}"
        console.print(about, style="dim", markup=False, highlight=False)
        if measured := hit.measurements:
            console.print(f"   measured: {clean(_summary(measured))}", style="dim", markup=False)
        if asked := [entry["purpose"] for entry in hit.why.get("asked", []) if entry["purpose"]]:
            purposes = ", ".join(dict.fromkeys(asked))
            console.print(f"   for: {clean(purposes)}", style="dim", markup=False, soft_wrap=True)
        if elsewhere := hit.why.get("also_at"):
            console.print(
                f"   also at {clean('; '.join(elsewhere))}", style="dim", markup=False, soft_wrap=True
            )
        lines = clean(hit.text).strip().splitlines()
        shown = [f"   {line}" for line in lines[:8]] + (["   …"] if len(lines) > 8 else [])
        console.print("\n".join(shown), markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"{counted(len(result.hits), 'passage')} in {result.elapsed_ms:.0f} ms", style="dim", markup=False
    )


def _summary(measurements: list[dict[str, Any]]) -> str:
    """The best one in words, and how many there are."""
    best = measurements[0]
    parts = [str(best[key]) for key in ("target", "shape") if best.get(key)]
    for key, form in (("time_ms", "{:.4g} ms"), ("speedup", "speedup {:.3g}")):
        if isinstance(best.get(key), int | float):
            parts.append(form.format(best[key]))
    more = f" (and {len(measurements) - 1} more)" if len(measurements) > 1 else ""
    return ", ".join(parts) + more
