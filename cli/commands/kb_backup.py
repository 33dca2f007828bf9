"""`kernelevolve kb backup` and `kb restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.options import JsonFlag
from cli.output import emit, note, out
from cli.session import state_of, stored
from kb.wording import counted


def register(group: typer.Typer) -> None:
    group.command("backup", epilog="Example: kernelevolve kb backup monday.kebackup")(backup)
    group.command("restore", epilog="Example: kernelevolve --home ./other kb restore monday.kebackup")(
        restore
    )


def backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Where to write it.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write everything that is stored into one file, and read it back to be sure."""
    from cli.progress import steps
    from kb.upkeep.backup import backup as write
    from kb.upkeep.quota import readable

    with stored(state_of(context), repair=False) as kb, steps("backing up", "files") as progress:
        done = write(kb, file, force=force, progress=progress, waiting=note)
    if as_json:
        emit(done)
    else:
        out().print(
            f"{done['file']}: {counted(done['members'], 'file')}, {readable(done['bytes'])}, verified",
            markup=False, soft_wrap=True,
        )  # fmt: skip


def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="What `kb backup` has written.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Replace what the home holds.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make the home what a backup holds, after checking all of it, and rebuild the indexes."""
    from cli.progress import activity, steps
    from kb.upkeep.backup import restore as read

    state = state_of(context)
    with steps("restoring", "files") as progress:
        done = read(state.settings(), file, force=force, progress=progress, waiting=note)
    with stored(state, repair=False) as kb, activity("rebuilding the indexes"):
        kb.rebuild()
        counts = kb.stats()["counts"]
    if as_json:
        emit({**done, "documents": counts["document"], "runs": counts["run"]})
    else:
        out().print(
            f"{done['home']}: {counted(counts['document'], 'document')}, {counted(counts['run'], 'run')}",
            markup=False,
            soft_wrap=True,
        )
