"""`kernelevolve kb reembed`: have the embedding model that the settings name serve."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.options import JsonFlag
from cli.output import clean, emit, note, out
from cli.session import state_of, stored
from kb.wording import counted


def register(group: typer.Typer) -> None:
    group.command("reembed", epilog="Example: kernelevolve kb reembed --background")(reembed)


def reembed(
    context: typer.Context,
    background: Annotated[
        bool, typer.Option("--background", help="Return at once; `kb stats` says how far it is.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Embed everything with the model that the settings name, then have it answer.

    Until then the earlier one answers. Commands that ask start this in the background by themselves when
    the settings have changed; killed, it goes on where it was.
    """
    from cli.background import start_reembedding
    from cli.progress import steps
    from ingest.library import ingest_library, library_passages
    from kb.reembed import reembed as embed
    from kb.reembed import too_long
    from kb.serving import label

    with stored(state_of(context)) as kb:
        if background:
            started = kb.serving.next is not None and start_reembedding(kb)
            if as_json:
                emit({"started": started})
            else:
                out().print("started" if started else "nothing to start")
            return
        with steps("embedding", "passages") as progress:
            report = embed(kb, foreseen=lambda model: library_passages(kb, model), progress=progress)
        if report.switched:
            ingest_library(kb)  # cut for the model that serves now; its vectors are there
        cut_off = too_long(kb, kb.embedder) if report.switched else {}
        name = label(kb.settings.embedding_model, kb.settings.embedding_base_url)
    if cut_off:
        passages = counted(sum(cut_off.values()), "passage")
        what = f"longer than {name} reads: {passages} of {counted(len(cut_off), 'document')}"
        note(f"note: {clean(what)}; ingest them again", style="yellow")
    if as_json:
        emit({**report.to_json(), "too_long": cut_off})
    elif report.switched:
        counts = f"{report.embedded} of {counted(report.passages, 'passage')} were new to it"
        out().print(f"{clean(name)} answers now ({counts})", markup=False, soft_wrap=True)
    else:
        out().print(f"{clean(name)} answers already", markup=False, soft_wrap=True)
