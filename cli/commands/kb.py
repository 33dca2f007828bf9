"""`kernelevolve kb`: look into the knowledge base and look after it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.commands import kb_adapt, kb_backup, kb_eval, kb_reembed
from cli.options import JsonFlag
from cli.output import clean, emit, note, out
from cli.session import state_of, stored
from kb.wording import counted

SourceArgument = Annotated[str, typer.Argument(help="A source: its path or name, see `kb stats`.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Look into the knowledge base and look after it.", rich_markup_mode="rich")
    group.command("stats", epilog="Example: kernelevolve kb stats")(stats)
    group.command("open", epilog="Example: kernelevolve kb open 3f9c2a71b0d4")(open_chunk)
    group.command("check", epilog="Example: kernelevolve kb check --json")(check)
    group.command("lint", epilog="Example: kernelevolve kb lint docs/")(lint)
    group.command("rebuild", epilog="Example: kernelevolve kb rebuild")(rebuild)
    group.command("scope", epilog="Example: kernelevolve kb scope docs/rocm amd-hip")(scope)
    group.command("remove", epilog="Example: kernelevolve kb remove docs/old-manual")(remove)
    group.command("gc", epilog="Example: kernelevolve kb gc")(gc)
    kb_backup.register(group)
    kb_eval.register(group)
    kb_adapt.register(group)
    kb_reembed.register(group)
    app.add_typer(group, name="kb")


def stats(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Say what is stored: sources, documents, passages, and how much of the disk and the quota it takes."""
    with stored(state_of(context), repair=False) as kb:
        found = kb.stats()
    if as_json:
        emit(found)
        return
    from rich.table import Table

    from kb.upkeep.quota import readable

    table = Table("source", "scope", "visibility", "documents", "failed", "passages", box=None)
    for s in found["sources"]:
        name = clean(s["root"] if s["name"] != "library" else "curated library")
        table.add_row(
            name, s["scope"] or "–", s["visibility"], *(str(s[k]) for k in ("documents", "failed", "chunks"))
        )
    console = out()
    console.print(table)
    states = ", ".join(f"{n} {state}" for state, n in found["documents_by_state"].items()) or "none"
    console.print(f"documents: {states}", markup=False)
    scopes = ", ".join(f"{clean(scope)} {n}" for scope, n in found["documents_by_scope"].items()) or "none"
    console.print(f"by scope: {scopes}", markup=False, soft_wrap=True)
    console.print(f"vectors by {clean(found['embedding']['runtime'])}", markup=False, soft_wrap=True)
    if following := found["embedding"]["next"]:
        how_far = f"{following['embedded']} of {counted(following['passages'], 'passage')}"
        state = "being embedded" if following["running"] else following["error"] or "waiting for a query"
        console.print(
            f"next: {clean(following['name'])}, {how_far} ({clean(state)})", markup=False, soft_wrap=True
        )
    limit = f" of {readable(found['quota'])}" if found["quota"] else ""
    console.print(f"{found['home']}: {readable(found['bytes'])}{limit}", markup=False, soft_wrap=True)


def open_chunk(
    context: typer.Context,
    chunk: Annotated[str, typer.Argument(help="Id of a passage, or its first digits.", show_default=False)],
    around: Annotated[
        int, typer.Option("--lines", min=0, help="Lines of the document before and after it.")
    ] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Show a passage where it stands in its document."""
    from kb.upkeep.view import open_chunk as look

    with stored(state_of(context), repair=False) as kb:
        found = look(kb, chunk, context=around)
    if as_json:
        emit(found)
        return
    console = out()
    console.print(clean(found["citation"]), style="bold", markup=False, soft_wrap=True)
    facts = f"{found['location']}, {found['kind']}, scope {found['scope']}, {found['visibility']}"
    console.print(clean(facts), style="dim", markup=False, soft_wrap=True)
    width = len(str(found["lines"][-1]["number"])) if found["lines"] else 1
    for line in found["lines"]:
        mark, style = (">", "") if line["inside"] else (" ", "dim")
        console.print(
            f"{mark}{line['number']:>{width}} {clean(line['text'])}",
            style=style, markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    if found["rendered"]:
        console.print("\nas it is stored:", style="dim")
        console.print(clean(found["text"]), markup=False, highlight=False, soft_wrap=True)


def check(context: typer.Context, as_json: JsonFlag = False) -> None:
    """See whether database, indexes and documents agree. Exit code 1, with what is wrong, if they do not.

    Nothing is repaired: `kb rebuild` makes the indexes anew.
    """
    from cli.progress import activity
    from kb.upkeep.check import check as look

    with stored(state_of(context), repair=False) as kb, activity("checking the knowledge base"):
        report = look(kb)
    if as_json:
        emit(report.to_json())
    else:
        for problem in report.problems:
            note(f"{problem['what']}: {problem['detail']}", style="red")
        if report.problem_count > len(report.problems):
            note(f"… and {report.problem_count - len(report.problems)} more", style="red")
        looked_at = ", ".join(
            counted(n, noun)
            for n, noun in (
                (report.documents, "document"), (report.chunks, "chunk"), (report.vectors, "vector")
            )
        )  # fmt: skip
        verdict = "everything agrees" if report.ok else counted(report.problem_count, "problem")
        out().print(f"{looked_at}: {verdict}", markup=False)
        if not report.ok:
            note("hint: `kernelevolve kb rebuild` makes the indexes anew; ingest a damaged document again")
    if not report.ok:
        raise typer.Exit(1)


def lint(
    context: typer.Context,
    source: Annotated[str | None, typer.Argument(help="Only this source.", show_default=False)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what is weak about your documents. Exit code 1 if there is something.

    Missing front matter, dead links, empty sections, titles that several have, checks that are long ago.
    """
    from ingest.lint import lint as look

    with stored(state_of(context), repair=False) as kb:
        findings = look(kb, source)
    if as_json:
        emit({"findings": findings})
    else:
        for f in findings:
            out().print(
                f"{clean(f.path)}:{f.line}: {f.rule}: {clean(f.detail)}", markup=False, soft_wrap=True
            )
        out().print(counted(len(findings), "finding") if findings else "nothing to complain about")
    if findings:
        raise typer.Exit(1)


def rebuild(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Make the lexical and the vector index anew from the database."""
    from cli.progress import activity

    with stored(state_of(context), repair=False) as kb, activity("rebuilding the indexes"):
        kb.rebuild()
        counts = kb.stats()["counts"]
    if as_json:
        emit({"chunks": counts["chunk"], "passages": counts["passage"]})
    else:
        out().print(f"rebuilt: {counted(counts['chunk'], 'chunk')}, {counted(counts['passage'], 'passage')}")


def scope(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="A file, folder or archive that was ingested, or a source.")],
    label: Annotated[str, typer.Argument(help="Where it holds: generic, cpu, nvidia, nvidia:sm_90 …")],
    as_json: JsonFlag = False,
) -> None:
    """Correct the scope of everything at or below a path. Nothing is embedded again; it holds from now on."""
    from kb.upkeep.rescope import correct_scope

    with stored(state_of(context)) as kb:
        done = correct_scope(kb, what, label, waiting=note)
    if as_json:
        emit(done)
    else:
        counts = f"{done['changed']} of {counted(done['documents'], 'document')} changed"
        out().print(f"{done['location']}: {done['scope']} ({counts})", markup=False, soft_wrap=True)
        for text in done.get("notes", []):
            note(f"note: {text}", style="yellow")


def remove(context: typer.Context, source: SourceArgument, as_json: JsonFlag = False) -> None:
    """Forget a source and all that was made from it. Its files stay; `kb gc` then frees the space."""
    from cli.progress import steps
    from kb.upkeep.sources import remove_source

    with stored(state_of(context)) as kb, steps("removing", "documents") as progress:
        removed = remove_source(kb, source, progress=progress, waiting=note)
    if as_json:
        emit(removed)
    else:
        out().print(f"removed {removed['source']}: {_counts(removed)}", markup=False, soft_wrap=True)


def gc(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Remove what nothing refers to any more: texts, cached vectors, old index folders."""
    from cli.progress import activity
    from kb.upkeep.gc import collect_garbage
    from kb.upkeep.quota import readable

    with stored(state_of(context)) as kb, activity("tidying up"):
        report = collect_garbage(kb, waiting=note)
    if as_json:
        emit(report.to_json())
        return
    removed = (
        (report.blobs, "blob"), (report.embeddings, "vector"), (report.adapters, "adapter"),
        (report.folders, "folder"),
    )  # fmt: skip
    counts = ", ".join(counted(n, noun) for n, noun in removed)
    out().print(f"removed {counts}: {readable(report.bytes_freed)} freed", markup=False)


def _counts(result: dict[str, Any]) -> str:
    return f"{counted(result['documents'], 'document')}, {counted(result['chunks'], 'passage')}"
