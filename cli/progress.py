"""Progress on standard error: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from cli.output import clean, err, note
from kb.wording import counted

if TYPE_CHECKING:
    from ingest import IngestReport
    from ingest import Progress as Step

_SHOWN = 50  # failures that are spelt out
_TELL_EVERY_S = 15.0  # where there is no terminal: a log should show that it goes on


@contextlib.contextmanager
def ingest_progress(title: str) -> Iterator[Callable[[Step], None]]:
    """Yield a progress callback for an ingestion. Nothing is shown until there is something to do."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = err()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rates]}"),
        TextColumn("{task.fields[path]}", style="dim", markup=False),
    )
    progress = Progress(*columns, console=console, transient=True)
    task: Any = None
    started = told = 0.0

    def callback(step: Step) -> None:
        nonlocal task, started, told
        if step.message:
            note(step.message)
        if not step.total:
            return
        if task is None:
            started = told = time.monotonic()
            if console.is_terminal:
                progress.start()
            else:
                note(f"{title} ({counted(step.total, 'file')})")
            task = progress.add_task(title, total=step.total, path="", rates="")
        speed = rates(step, time.monotonic() - started)
        progress.update(task, completed=step.done, total=step.total, path=clean(step.path[-60:]), rates=speed)
        if not console.is_terminal and time.monotonic() - told > _TELL_EVERY_S:
            told = time.monotonic()
            note(f"{title}: {step.done} of {counted(step.total, 'file')}, {speed}")

    try:
        yield callback
    finally:
        if progress.live.is_started:  # stopping what never started prints an empty line
            progress.stop()


def rates(step: Step, elapsed_s: float) -> str:
    """Chunks per second, and pages where there are some."""
    elapsed_s = max(elapsed_s, 1e-3)
    pages = f"{step.pages / elapsed_s:.1f} pages/s, " if step.pages else ""
    return f"{pages}{step.chunks / elapsed_s:.1f} chunks/s"


@contextlib.contextmanager
def steps(title: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback (done, total): a bar on a terminal, one line elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        console=err(),
        transient=True,
    )
    task: Any = None

    def callback(done: int, total: int) -> None:
        nonlocal task
        if task is None:
            if progress.console.is_terminal:
                progress.start()
            else:
                note(f"{title} ({counted(total, unit.removesuffix('s'))})")
            task = progress.add_task(title, total=total)
        progress.update(task, completed=done, total=total)

    try:
        yield callback
    finally:
        if progress.live.is_started:
            progress.stop()


@contextlib.contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a callback (stage, done, total): one bar after the other."""
    current = ""
    bar: Callable[[int, int], None]
    with contextlib.ExitStack() as stack:

        def callback(stage: str, done: int, total: int) -> None:
            nonlocal current, bar
            if stage != current:
                stack.close()
                current, bar = stage, stack.enter_context(steps(stage, "steps"))
            bar(done, total)

        yield callback


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


def report_failures(result: IngestReport) -> None:
    """Name what an ingestion could not read, and what it had to assume."""
    for failure in result.failed[:_SHOWN]:
        note(f"failed: {failure['path']}: {failure['error']}", style="red")
    if len(result.failed) > _SHOWN:
        note(f"… and {len(result.failed) - _SHOWN} more failed; --json lists them all", style="red")
    for path in result.needs_ocr:
        note(f"scanned pages need OCR (install tesseract): {path}", style="yellow")
    for item in result.notes:
        note(f"note: {item['path']}: {'; '.join(item['notes'])}", style="yellow")
