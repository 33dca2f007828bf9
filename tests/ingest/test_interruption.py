"""Runs that are interrupted, and those that meet others."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_support import snapshot

from ingest import Progress, ingest_paths
from kb import KnowledgeBase, Settings
from kb.errors import StoreLocked
from kb.locks import file_lock


def many(root: Path, n: int = 40) -> Path:
    root.mkdir()
    for i in range(n):
        parts = "\n".join(f"## Part {j}\n\ntiles {i} lanes {j}\n" for j in range(10))
        (root / f"{i:03}.md").write_text(f"# Document {i}\n\n{parts}")
    return root


@pytest.fixture
def clean(tmp_path: Path, embedder: Any) -> Callable[[Path], list[tuple[Any, ...]]]:
    def run(corpus: Path) -> list[tuple[Any, ...]]:
        with KnowledgeBase.open(Settings(home=tmp_path / "clean"), embedder=embedder) as kb:
            ingest_paths(kb, [corpus])
            return snapshot(kb)

    return run


@pytest.mark.parametrize("at", [1, 15, 39])
def test_interrupted_run_continues_to_the_same_state(
    settings: Settings, tmp_path: Path, embedder: Any, clean: Any, at: int
) -> None:
    corpus = many(tmp_path / "many")

    def interrupt(progress: Progress) -> None:
        if progress.done == at:
            raise KeyboardInterrupt

    with KnowledgeBase.open(settings, embedder=embedder) as kb, pytest.raises(KeyboardInterrupt):
        ingest_paths(kb, [corpus], progress=interrupt)
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        report = ingest_paths(kb, [corpus])
        assert report.added + report.unchanged == 40
        assert snapshot(kb) == clean(corpus)


KILLED = """
import sys
sys.path.insert(0, sys.argv[3])
from conftest import HashEmbedder
from kb import KnowledgeBase, Settings
from ingest import ingest_paths
kb = KnowledgeBase.open(Settings(home=sys.argv[1]), embedder=HashEmbedder())
ingest_paths(kb, [sys.argv[2]], progress=lambda p: print(p.done, p.chunks, flush=True))
"""


def start(home: Path, corpus: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", KILLED, str(home), str(corpus), str(Path(__file__).parent)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_killed_run_continues_to_the_same_state(
    settings: Settings, tmp_path: Path, embedder: Any, clean: Any
) -> None:
    corpus = many(tmp_path / "many")
    for delay in (0.0, 0.05, 0.2):
        process = start(settings.home, corpus)
        assert process.stdout is not None
        while (line := process.stdout.readline()) and line.split()[1] == b"0":
            pass
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        ingest_paths(kb, [corpus])
        assert snapshot(kb) == clean(corpus)


def test_two_processes_ingest_one_after_the_other(
    settings: Settings, tmp_path: Path, embedder: Any, clean: Any
) -> None:
    corpus = many(tmp_path / "many", 20)
    processes = [start(settings.home, corpus) for _ in range(2)]
    for p in processes:
        p.communicate(timeout=60)
    assert [p.returncode for p in processes] == [0, 0]
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        assert kb.notices == []
        assert snapshot(kb) == clean(corpus)


def test_second_ingestion_waits_says_so_and_gives_up(
    kb: KnowledgeBase, settings: Settings, corpus: Path, embedder: Any
) -> None:
    impatient = settings.model_copy(update={"lock_timeout_s": 0.2})
    messages: list[str] = []
    with (
        file_lock(settings.home / "ingest.lock", timeout_s=1, what="testing"),
        KnowledgeBase.open(impatient, embedder=embedder) as other,
        pytest.raises(StoreLocked),
    ):
        ingest_paths(other, [corpus], progress=lambda p: messages.append(p.message))
    assert "another process is ingesting" in messages[0]


def test_progress_reaches_the_total(kb: KnowledgeBase, corpus: Path) -> None:
    seen: list[Progress] = []
    ingest_paths(kb, [corpus], progress=seen.append)
    assert [(p.done, p.total) for p in seen] == [(i, 4) for i in range(1, 5)]
