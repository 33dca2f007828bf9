"""Document states, retries, interruptions and kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sources_support import documents, write

from ingest import ingest_paths
from kb import KnowledgeBase, Settings
from kb.errors import EmbeddingFailed, QuotaExceeded
from kb.upkeep.check import check

# --- states ---


def test_states_say_how_far_a_document_came(kb: KnowledgeBase, corpus: Path, embedder: Any) -> None:
    real = embedder.embed

    def broken(texts: Any) -> Any:
        raise EmbeddingFailed("the endpoint is down")

    embedder.embed = broken
    with pytest.raises(EmbeddingFailed):
        ingest_paths(kb, [corpus])
    found = documents(kb)
    assert {(d.state, d.error) for d in found.values()} == {("parsed", "the endpoint is down")}
    assert kb.stats()["counts"]["chunk"] == 0
    embedder.embed = real
    report = ingest_paths(kb, [], retry_failed=True)
    assert (report.added, report.updated) == (4, 0)
    assert {(d.state, d.error) for d in documents(kb).values()} == {("embedded", "")}


def test_retrying_looks_only_at_what_failed(kb: KnowledgeBase, corpus: Path) -> None:
    for name in ("one.md", "guides/two.md", "gone.md"):
        (corpus / name).write_bytes(bytes(range(256)) * 8)
    (corpus / "top.txt").write_text("text\n")
    assert len(ingest_paths(kb, [corpus]).failed) == 3
    (corpus / "one.md").write_text("# One\n\nmended\n")
    (corpus / "guides" / "two.md").write_text("# Two\n\nmended\n")
    (corpus / "gone.md").unlink()
    (corpus / "rocm.md").write_text("# Changed\n\nbut nobody asked\n")
    (corpus / "new.md").write_text("# New\n\nnobody asked\n")
    assert ingest_paths(kb, [f"{corpus}/*.txt"], retry_failed=True).updated == 0
    report = ingest_paths(kb, [corpus / "guides"], retry_failed=True)
    assert (report.updated, report.removed, report.failed) == (1, 0, [])
    report = ingest_paths(kb, [], retry_failed=True)
    assert (report.added, report.updated, report.removed, report.unchanged) == (0, 1, 1, 0)
    assert set(documents(kb)) == {
        "guides/tiling.md", "guides/vectors.txt", "guides/two.md", "kernel.py", "rocm.md", "one.md",
        "top.txt",
    }  # fmt: skip
    assert kb.query("wavefront lanes").hits


def test_retrying_members_of_archives(kb: KnowledgeBase, tmp_path: Path) -> None:
    import zipfile

    def pack(bad: bytes) -> None:
        with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
            archive.writestr("good.md", "# G\n\nx\n")
            archive.writestr("bad.md", bad)

    pack(bytes(range(256)) * 8)
    assert len(ingest_paths(kb, [tmp_path / "m.zip"]).failed) == 1
    pack(b"# B\n\nmended\n")
    report = ingest_paths(kb, [], retry_failed=True)
    assert (report.updated, report.removed, report.failed) == (1, 0, [])
    assert set(documents(kb)) == {"m.zip!good.md", "m.zip!bad.md"}


def test_the_quota_stops_an_ingestion_that_can_go_on_later(
    settings: Settings, tmp_path: Path, embedder: Any
) -> None:
    root = write(
        tmp_path / "d", **{f"{i}_md": f"# D{i}\n\n" + f"tiles {i} lanes\n\n" * 1600 for i in range(8)}
    )
    limited = settings.model_copy(update={"quota": 2_500_000})
    with KnowledgeBase.open(limited, embedder=embedder) as kb, pytest.raises(QuotaExceeded, match="quota"):
        ingest_paths(kb, [root])
    size = sum(f.stat().st_size for f in settings.home.rglob("*") if f.is_file())
    assert size <= 2_500_000
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        assert ingest_paths(kb, [root]).failed == []
        assert len(documents(kb)) == 8
        assert check(kb).problems == []


INTERRUPTED = """
import sys
sys.path.insert(0, sys.argv[3])
from conftest import HashEmbedder
from kb import KnowledgeBase, Settings
from ingest import ingest_paths
kb = KnowledgeBase.open(Settings(home=sys.argv[1]), embedder=HashEmbedder())
print("open", flush=True)
ingest_paths(kb, [sys.argv[2]])
"""


@pytest.mark.full
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_anywhere_and_run_again(
    settings: Settings, tmp_path: Path, embedder: Any, kill: signal.Signals
) -> None:
    import random
    import tarfile

    root = tmp_path / "many"
    for i in range(60):
        parts = "\n".join(f"## Part {j}\n\ntiles {i} lanes {j}\n" for j in range(6))
        write(root / f"f{i % 5}", **{f"{i:03}_md": f"# Document {i}\n\n{parts}"})
    with tarfile.open(root / "packed.tar.gz", "w:gz") as archive:
        archive.add(root / "f0", "inner")
    command = [sys.executable, "-c", INTERRUPTED, str(settings.home), str(root), str(Path(__file__).parent)]
    draw = random.Random(int(kill))
    for _ in range(8):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(draw.uniform(0, 0.8))
        process.send_signal(kill)
        process.wait()
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        ingest_paths(kb, [root])
        assert check(kb).problems == []
        assert set(kb.stats()["documents_by_state"]) == {"embedded"}
        found = [[(h.chunk_id, h.score) for h in kb.query(q, k=50).hits] for q in ("tiles 3", "lanes 5 part")]
    with KnowledgeBase.open(Settings(home=tmp_path / "clean"), embedder=embedder) as kb:
        ingest_paths(kb, [root])
        clean = [[(h.chunk_id, h.score) for h in kb.query(q, k=50).hits] for q in ("tiles 3", "lanes 5 part")]
    assert found == clean
    assert not (settings.home / "scratch").exists()


UPKEEP = """
import sys
sys.path.insert(0, sys.argv[3])
from conftest import HashEmbedder
from kb import KnowledgeBase, Settings
from ingest import ingest_paths
from kb.upkeep.gc import collect_garbage
from kb.upkeep.rescope import correct_scope
from kb.upkeep.sources import remove_source
kb = KnowledgeBase.open(Settings(home=sys.argv[1]), embedder=HashEmbedder())
root, what = sys.argv[2], sys.argv[4]
print("open", flush=True)
if what == "scope":
    for label in ("cpu", "nvidia", "triton", "amd"):
        correct_scope(kb, root, label)
elif what == "remove":
    remove_source(kb, root)
    ingest_paths(kb, [root])
elif what == "gc":
    collect_garbage(kb)
    kb.rebuild()
else:
    for _ in range(5):
        kb.query("tiles lanes")
"""


@pytest.mark.full
def test_upkeep_killed_anywhere_leaves_a_sound_store(
    settings: Settings, tmp_path: Path, embedder: Any
) -> None:
    import random

    root = tmp_path / "many"
    for i in range(40):
        parts = "\n".join(f"## Part {j}\n\ntiles {i} lanes {j}\n" for j in range(6))
        write(root, **{f"{i:03}_md": f"# Document {i}\n\n{parts}"})
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        ingest_paths(kb, [root])
    draw = random.Random(7)
    command = [sys.executable, "-c", UPKEEP, str(settings.home), str(root), str(Path(__file__).parent)]
    for what in ["scope", "remove", "gc", "query"] * 4:
        process = subprocess.Popen([*command, what], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(draw.uniform(0, 0.6))
        process.send_signal(signal.SIGKILL)
        assert b"Traceback" not in process.communicate()[1]
        with KnowledgeBase.open(settings, embedder=embedder) as kb:
            assert check(kb).problems == [], what
            ingest_paths(kb, [root])
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        ingest_paths(kb, [root])
        assert len(documents(kb)) == 40
        assert {h.path for h in kb.query("tiles 3", k=50).hits}


@pytest.mark.full
def test_everything_at_once(settings: Settings, tmp_path: Path, embedder: Any) -> None:
    """Processes that ingest, tidy, correct and ask share a home: all end well, and the store is sound."""
    root = tmp_path / "many"
    for i in range(30):
        write(root, **{f"{i:03}_md": f"# Document {i}\n\ntiles {i} lanes\n"})
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        ingest_paths(kb, [root])
    command = [sys.executable, "-c", UPKEEP, str(settings.home), str(root), str(Path(__file__).parent)]
    processes = [
        subprocess.Popen([*command, what], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for what in ("remove", "gc", "query", "query")
    ]
    errors = [p.communicate(timeout=120)[1].decode() for p in processes]
    assert [p.returncode for p in processes] == [0] * 4, errors
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        assert check(kb).problems == []
        assert len(documents(kb)) == 30


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_may_not_be_read(kb: KnowledgeBase, corpus: Path) -> None:
    (corpus / "guides").chmod(0)
    try:
        report = ingest_paths(kb, [corpus])
    finally:
        (corpus / "guides").chmod(0o755)
    assert report.failed == [{"path": str(corpus / "guides"), "error": "the folder cannot be listed"}]
