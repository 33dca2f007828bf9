"""What an ingestion shows while it runs."""

from __future__ import annotations

import pytest

from cli import progress
from ingest import Progress


def test_rates_are_those_of_the_whole_run() -> None:
    assert progress.rates(Progress(3, 9, chunks=60, pages=30), 10.0) == "3.0 pages/s, 6.0 chunks/s"
    assert progress.rates(Progress(3, 9, chunks=60), 10.0) == "6.0 chunks/s", "nothing has pages"


def test_a_log_is_told_how_fast_it_goes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_TELL_EVERY_S", -1.0)
    with progress.ingest_progress("ingesting") as callback:
        callback(Progress(1, 2, "a.pdf", chunks=4, pages=2))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "ingesting (2 files)"
    assert lines[1].startswith("ingesting: 1 of 2 files, ")
    assert "pages/s" in lines[1]
    assert lines[1].endswith("chunks/s")
