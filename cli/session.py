"""What commands open: settings, the knowledge base with the curated library in it, and the executor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli.errors import UsageProblem

if TYPE_CHECKING:
    import typer

    from harness import Executor
    from harness.problem_checks import CheckedExecutor
    from kb import KnowledgeBase, Settings


@dataclass(frozen=True)
class AppState:
    """The global options of one command line."""

    home: Path | None
    verbose: bool

    def settings(self) -> Settings:
        from kb import Settings

        return Settings(home=self.home) if self.home is not None else Settings()


def state_of(context: typer.Context) -> AppState:
    state = context.obj
    assert isinstance(state, AppState)
    return state


@contextlib.contextmanager
def knowledge_base(state: AppState, *, wait: bool = True) -> Iterator[KnowledgeBase]:
    """The open knowledge base with the current curated library; reading that in shows progress.

    Without `wait`, a process that changes documents is not waited for: what is stored answers.
    """
    from cli.background import keep_reembedding
    from cli.progress import ingest_progress, report_failures
    from kb import KnowledgeBase

    with KnowledgeBase.open(state.settings()) as kb:
        from ingest import ingest_library

        if kb.serving.answering is not None:  # else it waits until the next model serves
            with ingest_progress("reading the curated library") as callback:
                result = ingest_library(kb, progress=callback, wait=wait)
            report_failures(result)
        keep_reembedding(kb)
        yield kb


def checked_target(kb: KnowledgeBase, target: str | None) -> list[str]:
    """What a person should know about the target that was asked for, said at once; empty: nothing.

    Raises LabelUnknown where nothing can be meant by it.
    """
    from cli.output import note
    from harness.target import list_targets
    from kb.labels import check_target

    if target is None:
        return []
    said = check_target(target, kb.scopes(), [t.name for t in list_targets()])
    if said is None:
        return []
    note(f"note: {said}", style="yellow")
    return [said]


@contextlib.contextmanager
def open_runs(state: AppState) -> Iterator[KnowledgeBase]:
    """The open knowledge base for commands that only look at runs; the library is left as it is."""
    with stored(state) as kb:
        yield kb


@contextlib.contextmanager
def stored(state: AppState, *, repair: bool = True) -> Iterator[KnowledgeBase]:
    """The open knowledge base as it is: the curated library is not read in."""
    from kb import KnowledgeBase

    with KnowledgeBase.open(state.settings(), repair=repair) as kb:
        yield kb


@contextlib.contextmanager
def executor(
    state: AppState, where: str = "local", *, require_sandbox: bool = False
) -> Iterator[CheckedExecutor]:
    """The judge: on this machine (its compiled artefacts stay under the home folder), or the workers of a
    folder.
    """
    from harness import LocalExecutor, SpoolExecutor
    from harness.problem_checks import CheckedExecutor

    kind, _, folder = where.partition(":")
    judge: Executor
    if where == "local":
        judge = LocalExecutor(state.settings().home / "cache", require_sandbox)
    elif kind == "spool" and folder:
        judge = SpoolExecutor(Path(folder).expanduser(), require_sandbox)
    else:
        raise UsageProblem(f"unknown executor {where!r}", "write local, or spool:DIR")
    with contextlib.closing(CheckedExecutor(judge, state.settings().home / "cache")) as checked:
        yield checked
