"""What commands open: settings, the knowledge base with the curated library in it, and the executor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

    from harness import LocalExecutor
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
def knowledge_base(state: AppState) -> Iterator[KnowledgeBase]:
    """The open knowledge base with the current curated library; reading that in shows progress."""
    from cli.progress import ingest_progress, report_failures
    from kb import KnowledgeBase

    with KnowledgeBase.open(state.settings()) as kb:
        from ingest import ingest_library

        with ingest_progress("reading the curated library") as callback:
            result = ingest_library(kb, progress=callback)
        report_failures(result)
        yield kb


@contextlib.contextmanager
def open_runs(state: AppState) -> Iterator[KnowledgeBase]:
    """The open knowledge base for commands that only look at runs; the library is left as it is."""
    from kb import KnowledgeBase

    with KnowledgeBase.open(state.settings()) as kb:
        yield kb


@contextlib.contextmanager
def executor(state: AppState, *, require_sandbox: bool = False) -> Iterator[LocalExecutor]:
    """The local judge; its compiled artefacts stay under the home folder."""
    from harness import LocalExecutor

    with LocalExecutor(cache_dir=state.settings().home / "cache", require_sandbox=require_sandbox) as judge:
        yield judge
