"""`kernelevolve kb adapt`: fit the embedding model to the documents in the knowledge base."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import JsonFlag
from cli.output import clean, emit, note, out
from cli.session import knowledge_base, state_of, stored

if TYPE_CHECKING:
    from kb.adaptation.compare import Comparison


def register(group: typer.Typer) -> None:
    group.command("adapt", epilog="Example: kernelevolve kb adapt --questions asked.jsonl")(adapt)


def adapt(
    context: typer.Context,
    questions: Annotated[
        Path | None,
        typer.Option(help='Questions with their answers: lines of {"at": "PATH:LINE", "q": ["…"]}.'),
    ] = None,
    ask: Annotated[
        int, typer.Option(min=0, help="Have the configured chat model ask about so many more passages.")
    ] = 0,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="How often each pair is seen; default: 2, on a GPU 9.")
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(min=100, help="Train on at most so many pairs; default: 8,000, on a GPU all."),
    ] = None,
    negatives: Annotated[
        int | None,
        typer.Option(min=0, help="Mine so many wrong answers for each question; default: 0, on a GPU 3."),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Go back to the model as it was.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Fine-tune the embedding model on the stored documents, and keep it only if it finds more.

    It learns from headings, first sentences and references, and from questions: given ones, and those that
    a chat model (`chat_model`) writes with --ask, which are kept. Documents that were kept apart decide.
    Minutes on a GPU; on two cores about an hour and 11 GB of memory for 8,000 pairs.
    """
    from dataclasses import replace

    from cli.errors import UsageProblem
    from cli.progress import stages
    from kb.adaptation.adapt import adapt as fit
    from kb.adaptation.adapt import forget, refuse_endpoint
    from kb.adaptation.training import recipe_here
    from kb.adaptation.writing import asked_file, write_questions
    from kb.chat import open_model

    if undo and (questions is not None or ask):
        raise UsageProblem("--undo takes no questions", "give one or the other")
    settings = state_of(context).settings()
    if ask and not settings.chat_model:
        raise UsageProblem("--ask needs a chat model", "set KERNELEVOLVE_CHAT_MODEL, such as openai:NAME")
    if undo:
        with stored(state_of(context), repair=False) as kb:  # the adapter may be damaged: nothing is loaded
            removed = forget(kb)
        if as_json:
            emit({"kept": False, "removed": None if removed is None else str(removed)})
        else:
            note("nothing to undo" if removed is None else f"removed {removed}")
        return
    refuse_endpoint(settings)
    chosen = {"epochs": epochs, "pairs": pairs, "negatives": negatives}
    with knowledge_base(state_of(context)) as kb, stages() as progress:
        if ask:
            model = open_model(settings.chat_model, settings.chat_base_url or None)
            write_questions(kb, model, ask, progress=lambda d, t: progress("asking", d, t))
        written = asked_file(kb.home)
        files = [*([questions] if questions else []), *([written] if written.is_file() else [])]
        recipe = replace(recipe_here(), **{name: n for name, n in chosen.items() if n is not None})
        found = fit(kb, questions=files, recipe=recipe, progress=progress)
    if as_json:
        emit(found.to_json())
        return
    from rich.table import Table

    table = Table("held out", "pairs", "MRR@10", "adapted", "gain", "95 %", "R@10", "adapted", box=None)
    for name, row in [("all", found.overall), *found.by_kind.items()]:
        table.add_row(clean(name), *_cells(row))
    console = out()
    console.print(table)
    if found.kept:
        console.print(f"kept: {found.file}", markup=False, soft_wrap=True)
        note("it answers once all is embedded anew: in the background from the next query, or `kb reembed`")
    else:
        console.print("not kept: the held-out pairs show no clear gain", markup=False)


def _cells(c: Comparison) -> list[str]:
    low, high = c.gain_ci
    figures = (c.mrr_before, c.mrr_after, c.gain)
    interval = f"[{low:+.3f}, {high:+.3f}]"
    return [
        str(c.pairs),
        *(f"{f:.3f}" for f in figures),
        interval,
        f"{c.recall_before:.3f}",
        f"{c.recall_after:.3f}",
    ]
