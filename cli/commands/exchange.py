"""`kernelevolve exchange`: answer the prompts of a search in place of a chat model."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import UsageProblem
from cli.files import read_source
from cli.options import JsonFlag
from cli.output import clean, emit, out
from cli.session import state_of

if TYPE_CHECKING:
    from agent.exchange import ExchangeFolder, Pending

_LOOK_S = 0.25

FolderOption = Annotated[
    Path | None,
    typer.Option("--dir", help="The folder of the exchange.", show_default="HOME/exchange"),
]
IdArgument = Annotated[
    str | None,
    typer.Argument(help="A prompt's id or its first characters; may be left out where only one waits."),
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Answer the prompts of `search --generator exchange` in place of a chat model.",
        rich_markup_mode="rich",
    )
    group.command("pending", epilog="Example: kernelevolve exchange pending --json")(pending)
    group.command("show", epilog="Example: kernelevolve exchange show > prompt.md")(show)
    group.command("answer", epilog="Example: kernelevolve exchange answer 2026 answer.md")(answer)
    app.add_typer(group, name="exchange")


def pending(
    context: typer.Context,
    folder: FolderOption = None,
    wait: Annotated[
        float, typer.Option(min=0, help="Wait so many seconds for a prompt while there is none.")
    ] = 0.0,
    as_json: JsonFlag = False,
) -> None:
    """List the prompts that wait for an answer, oldest first."""
    exchange = _folder(context, folder)
    until = time.monotonic() + wait
    while not (waiting := exchange.pending()) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    if as_json:
        emit({"folder": exchange.root, "pending": [_facts(exchange, entry) for entry in waiting]})
        return
    if not waiting:
        out().print(f"no prompt waits in {exchange.root}", markup=False, highlight=False, soft_wrap=True)
        return
    from rich.table import Table

    table = Table("id", "problem", "target", "step", "tokens", "since", box=None, header_style="bold")
    for entry in waiting:
        step = f"{entry.step}" + (" (again)" if entry.round > 1 else "")
        table.add_row(
            entry.id, clean(entry.problem), clean(entry.target), step, f"{entry.tokens:,}", entry.created
        )
    out().print(table)


def show(
    context: typer.Context, id: IdArgument = None, folder: FolderOption = None, as_json: JsonFlag = False
) -> None:
    """Print a prompt as a chat model would get it."""
    exchange = _folder(context, folder)
    entry = exchange.find(id)
    if as_json:
        emit({**_facts(exchange, entry), "prompt": entry.text, "messages": entry.messages})
    else:
        sys.stdout.write(entry.text if entry.text.endswith("\n") else entry.text + "\n")


def answer(
    context: typer.Context,
    id: Annotated[str, typer.Argument(help="A prompt's id or its first characters.", show_default=False)],
    file: Annotated[
        str | None,
        typer.Argument(
            help="The answer: text as a chat model writes it, a whole kernel file, or JSON (*.json); "
            "- is standard input.",
            show_default=False,
        ),
    ] = None,
    refuse: Annotated[
        str | None, typer.Option(metavar="WHY", help="Give no answer: the step ends without a candidate.")
    ] = None,
    folder: FolderOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Answer a prompt. The search takes it within a second, or when it is resumed."""
    import json

    from agent.exchange import check_json

    if (file is None) == (refuse is None):
        raise UsageProblem("give either a FILE or --refuse WHY", "kernelevolve exchange answer --help")
    exchange = _folder(context, folder)
    entry = exchange.find(id)
    if file is None:
        path = exchange.answer(entry.id, json.dumps({"refused": refuse}), as_json=True)
    else:
        text = sys.stdin.read() if file == "-" else read_source(Path(file), "answer")
        is_json = file.endswith(".json")
        if not text.strip():
            raise UsageProblem(f"{file} is empty", "write an answer, or use --refuse WHY")
        if is_json:
            check_json(text)
        path = exchange.answer(entry.id, text, as_json=is_json)
    if as_json:
        emit({"id": entry.id, "path": path})
    else:
        out().print(f"answered {entry.id}", markup=False, highlight=False)


def _folder(context: typer.Context, folder: Path | None) -> ExchangeFolder:
    from agent.exchange import ExchangeFolder, exchange_folder

    named = None if folder is None else str(folder)
    return ExchangeFolder(exchange_folder(named, state_of(context).settings().home))


def _facts(exchange: ExchangeFolder, entry: Pending) -> dict[str, object]:
    keys = ("id", "run_id", "step", "round", "problem", "target", "tokens", "created")
    paths = [exchange.answers / f"{entry.id}.{suffix}" for suffix in ("md", "json")]
    return {
        **{key: getattr(entry, key) for key in keys},
        "prompt_path": exchange.prompts / f"{entry.id}.md",
        "answer_paths": paths,
    }
