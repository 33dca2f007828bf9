"""`kernelevolve kb eval`: how well, and how fast, does retrieval answer known questions."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.options import JsonFlag
from cli.output import clean, emit, note, out
from cli.session import state_of
from kb.wording import counted

_SHOWN = 20  # answers that cannot be found, spelt out
FIGURES = ("recall@5", "recall@10", "ndcg@10", "mrr", "hit@8000")


def register(group: typer.Typer) -> None:
    group.command("eval", epilog="Example: kernelevolve kb eval questions.jsonl --corpus docs/")(evaluate)


def evaluate(
    context: typer.Context,
    benchmark: Annotated[Path, typer.Argument(help="Questions with their answers.", show_default=False)],
    corpus: Annotated[Path, typer.Option(help="Folder of the documents asked about.", show_default=False)],
    no_target: Annotated[bool, typer.Option("--no-target", help="Ask without naming the target.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Measure retrieval with questions whose answers are known.

    Each line of BENCHMARK is a JSON object with `query`, `gold` (a list of `path`, below the corpus, and
    `substring`) and optionally `id`, `target` and `kind`. The corpus is read into a store of its own,
    which is kept for the next time.
    """
    from cli.errors import UsageProblem
    from cli.progress import ingest_progress, report_failures, steps
    from ingest import ingest_paths
    from kb import KnowledgeBase
    from kb.benchmark import metrics, read_benchmark, run_benchmark, unanswerable
    from kb.reembed import reembed
    from kb.serving import open_embedder

    if not corpus.is_dir():
        raise UsageProblem(f"no such folder: {corpus}", "give the folder that the answers' paths start from")
    queries = read_benchmark(benchmark)
    settings = state_of(context).settings()
    key = hashlib.sha256(str(corpus.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    home = settings.home / "benchmarks" / key
    model = open_embedder(settings)  # adapted as the user's own home has it
    with KnowledgeBase.open(settings.model_copy(update={"home": home}), embedder=model) as kb:
        if kb.serving.next is not None:  # what is measured is the model that the settings name
            with steps("embedding", "passages") as embedded:
                reembed(kb, progress=embedded)
        with ingest_progress("reading the corpus") as progress:
            report_failures(ingest_paths(kb, [corpus], progress=progress))
        with steps("asking", "questions") as asked:
            answers = run_benchmark(kb, queries, use_target=not no_target, progress=asked)
        chunks = kb.stats()["counts"]["chunk"]
        lost = unanswerable(kb, queries)
    for gold in lost[:_SHOWN]:
        note(f"question {clean(gold['id'])}: {clean(gold['path'])}: {gold['why']}", style="yellow")
    if len(lost) > _SHOWN:
        note(f"… and {len(lost) - _SHOWN} more answers that cannot be found; --json lists them all")
    found: dict[str, Any] = {
        **metrics(answers), "target_given": not no_target, "chunks": chunks, "unanswerable": lost
    }  # fmt: skip
    if as_json:
        found["answers"] = [{"id": a.query.query_id, "rank": a.rank} for a in answers]
        emit(found)
        return
    from rich.table import Table

    table = Table("", "questions", *FIGURES, box=None)
    for name, row in [("all", found), *found["kinds"].items()]:
        table.add_row(clean(name), str(row["queries"]), *(f"{row[figure]:.2f}" for figure in FIGURES))
    out().print(table)
    times = f"{found['p50_ms']:.0f} ms a query, 95 % within {found['p95_ms']:.0f} ms"
    out().print(f"{counted(chunks, 'passage')}; {times}")
