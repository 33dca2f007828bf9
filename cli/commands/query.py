"""`kernelevolve query`: ask the knowledge base."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.options import JsonFlag, OptionalTarget
from cli.output import clean, emit, note, out
from cli.session import checked_target, knowledge_base, state_of


def register(app: typer.Typer) -> None:
    app.command(epilog='Example: kernelevolve query "avoid bank conflicts" --target nvidia:sm_90 -k 5')(query)


def query(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="What to look for, in words.")],
    target: OptionalTarget = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", help="Only this kind (skill, guidance, hardware …); repeatable."),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, max=100, help="How many passages.")] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Find passages in the knowledge base, each with an exact citation."""
    from cli.errors import UsageProblem

    if not text.strip():
        raise UsageProblem("the query is empty", 'ask in words: kernelevolve query "fast softmax"')
    with knowledge_base(state_of(context)) as kb:
        notes = checked_target(kb, target)
        result = kb.query(text, target=target, kinds=kinds or None, k=k)
    if as_json:
        emit(result.to_json() | ({"notes": notes} if notes else {}))
        return
    console = out()
    if result.inferred is not None:
        scopes, words = sorted(result.inferred.scopes), result.inferred.words
        note(f"no target given: {', '.join(scopes)} preferred because of {', '.join(words)}")
    for hit in result.hits:
        console.print(f"{hit.rank}. {clean(hit.citation)}", style="bold", markup=False, soft_wrap=True)
        about = f"   {hit.kind}, score {hit.score:.3f}, kb open {hit.chunk_id[:12]}"
        console.print(about, style="dim", markup=False, highlight=False)
        if measured := hit.measurements:
            console.print(f"   measured: {clean(_summary(measured))}", style="dim", markup=False)
        lines = clean(hit.text).strip().splitlines()
        shown = [f"   {line}" for line in lines[:8]] + (["   …"] if len(lines) > 8 else [])
        console.print("\n".join(shown), markup=False, highlight=False, soft_wrap=True)
    console.print(f"{len(result.hits)} passages in {result.elapsed_ms:.0f} ms", style="dim", markup=False)


def _summary(measurements: list[dict[str, Any]]) -> str:
    """The best one in words, and how many there are."""
    best = measurements[0]
    parts = [str(best[key]) for key in ("target", "shape") if best.get(key)]
    for key, form in (("time_ms", "{:.4g} ms"), ("speedup", "speedup {:.3g}")):
        if isinstance(best.get(key), int | float):
            parts.append(form.format(best[key]))
    more = f" (and {len(measurements) - 1} more)" if len(measurements) > 1 else ""
    return ", ".join(parts) + more
