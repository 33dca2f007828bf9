"""Progress on standard error: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from cli.output import err, note

IngestCallback = Callable[[int, int, str], None]


@contextlib.contextmanager
def ingest_progress(title: str) -> Iterator[IngestCallback]:
    """Yield `callback(done, total, path)`. Nothing is shown until the first file is read."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = err()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[path]}"),
    )
    progress = Progress(*columns, console=console, transient=True)
    task: Any = None

    def callback(done: int, total: int, path: str) -> None:
        nonlocal task
        if task is None:
            if console.is_terminal:
                progress.start()
            else:
                note(f"{title} ({total} files)")
            task = progress.add_task(title, total=total, path="")
        progress.update(task, completed=done, total=total, path=path[-60:])

    try:
        yield callback
    finally:
        progress.stop()


@contextlib.contextmanager
def activity(message: str) -> Iterator[None]:
    """A spinner with `message` on a terminal, one line elsewhere."""
    console = err()
    if console.is_terminal:
        with console.status(message):
            yield
    else:
        note(message)
        yield
