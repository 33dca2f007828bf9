"""Where log records go: what a person must know to standard error, third-party noise nowhere."""

from __future__ import annotations

import logging

OURS = ("kb", "ingest", "prompts", "agent", "harness")


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        from cli.output import note

        note(f"note: {record.getMessage()}", style="yellow")


def configure(*, verbose: bool) -> None:
    """Warnings of our packages become notes; with `verbose` every logger's INFO is shown as well."""
    root = logging.getLogger()
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", force=True)
        return
    root.handlers[:] = [logging.NullHandler()]
    for name in OURS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [_Notes(logging.WARNING)]
        logger.propagate = False
