from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import select

from kb import KnowledgeBase, Settings
from kb.errors import IndexUnavailable
from kb.tables import Embedding

Store = Callable[..., None]
TEXT = "first paragraph about tiling\n\nsecond paragraph about vector loads"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Every scope is too large for the exact search: Chroma answers."""
    return Settings(home=tmp_path / "home", lock_timeout_s=5.0, exact_passages=0)


@pytest.fixture
def closed(settings: Settings, embedder: Any, store: Store) -> Settings:
    """A home with two documents, closed."""
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        store(kb, "a.md", TEXT)
        store(kb, "b.md", "registers spill to local memory", scope="nvidia")
        kb.query("tiling")
    return settings


def reopen(settings: Settings, embedder: Any) -> tuple[list[str], list[str]]:
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        hits = kb.query("tiling paragraph", k=3).hits
        return kb.notices, [h.path for h in hits if h.why["vectors"] == "chroma"]


def index_folder(settings: Settings) -> Path:
    root = settings.home / "chroma"
    return root / json.loads((root / "manifest.json").read_text())["folder"]


def test_untouched_index_is_used_as_it_is(closed: Settings, embedder: Any) -> None:
    before = index_folder(closed)
    for _ in range(3):
        notices, paths = reopen(closed, embedder)
        assert notices == []
        assert "a.md" in paths
    assert index_folder(closed) == before


def test_a_document_stored_again_unchanged_leaves_the_index_in_step(
    closed: Settings, embedder: Any, store: Store
) -> None:
    with KnowledgeBase.open(closed, embedder=embedder) as kb:
        store(kb, "a.md", TEXT)
    assert reopen(closed, embedder)[0] == []


def test_vectors_are_not_computed_again_on_rebuild(closed: Settings, make_embedder: Any) -> None:
    shutil.rmtree(closed.home / "chroma")
    embedder = make_embedder()
    reopen(closed, embedder)
    assert embedder.embedded == ["tiling paragraph"]


def _remove(folder: Path) -> None:
    shutil.rmtree(folder.parent)


def _foreign_file(folder: Path) -> None:
    shutil.rmtree(folder.parent)
    folder.parent.write_text("something else")


def _truncate_graph(folder: Path) -> None:
    for path in folder.glob("*/data_level0.bin"):
        path.write_bytes(path.read_bytes()[:100])


def _overwrite_graph(folder: Path) -> None:
    for path in folder.glob("*/*.bin"):
        path.write_bytes(os.urandom(max(64, path.stat().st_size)))


def _truncate_database(folder: Path) -> None:
    path = folder / "chroma.sqlite3"
    path.write_bytes(path.read_bytes()[:5000])


def _scramble_database(folder: Path) -> None:
    path = folder / "chroma.sqlite3"
    content = path.read_bytes()
    path.write_bytes(content[:100] + os.urandom(len(content) - 100))


def _foreign_database(folder: Path) -> None:
    (folder / "chroma.sqlite3").write_bytes(b"not a database")


def _no_manifest(folder: Path) -> None:
    (folder.parent / "manifest.json").unlink()


def _broken_manifest(folder: Path) -> None:
    (folder.parent / "manifest.json").write_text('{"schema": 1, "fol')


def _lose_collections(folder: Path) -> None:
    import sqlite3

    with sqlite3.connect(folder / "chroma.sqlite3") as connection:
        connection.execute("DELETE FROM collections")


DAMAGE = [
    _remove, _foreign_file, _truncate_graph, _overwrite_graph, _truncate_database, _scramble_database,
    _foreign_database, _no_manifest, _broken_manifest, _lose_collections,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda f: f.__name__.strip("_"))
def test_damage_is_noticed_said_and_repaired(
    closed: Settings, embedder: Any, damage: Callable[[Path], None]
) -> None:
    damage(index_folder(closed))
    notices, paths = reopen(closed, embedder)
    assert len(notices) == 1
    assert "rebuilding it from the database" in notices[0]
    assert "a.md" in paths
    assert reopen(closed, embedder)[0] == []


def test_half_written_index_is_rebuilt(
    settings: Settings, embedder: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the commit to SQL and the update of the index."""
    with KnowledgeBase.open(settings, embedder=embedder) as kb:
        store(kb, "a.md", TEXT)
        monkeypatch.setattr(type(kb.vectors), "apply", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store(kb, "b.md", "tiling tiling tiling")
    monkeypatch.undo()
    notices, paths = reopen(settings, embedder)
    assert ["does not hold what the database says" in n for n in notices] == [True]
    assert "b.md" in paths


def test_write_after_a_failed_write_loses_nothing(
    kb: KnowledgeBase, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(kb, "a.md", TEXT)
    with monkeypatch.context() as patch:
        patch.setattr(type(kb.vectors), "apply", lambda *_: (_ for _ in ()).throw(IndexUnavailable("broken")))
        with pytest.raises(IndexUnavailable):
            store(kb, "b.md", "alpha beta")
    store(kb, "c.md", "gamma delta")
    assert len(kb.notices) == 1
    found = {h.path for h in kb.query("alpha gamma", k=10).hits if h.why["similarity"] is not None}
    assert found == {"a.md", "b.md", "c.md"}


def test_a_model_in_place_of_one_that_is_gone_rebuilds_and_keeps_the_old_vectors(
    closed: Settings, make_embedder: Any
) -> None:
    other = make_embedder(model_id="hash-embedder-2", dimension=32)
    notices, paths = reopen(closed, other)
    assert "made the vectors and cannot be used" in notices[0]
    assert "rebuilding it from the database" in notices[1]
    assert "a.md" in paths
    with KnowledgeBase.open(closed, embedder=other) as kb, kb.session() as session:
        models = {row.model for row in session.exec(select(Embedding)).all()}
    assert models == {"hash-embedder-1", "hash-embedder-2"}


def test_loss_while_open_is_repaired_with_a_notice(closed: Settings, embedder: Any) -> None:
    with KnowledgeBase.open(closed, embedder=embedder) as kb:
        assert kb.query("tiling").hits
        shutil.rmtree(closed.home / "chroma")
        assert any(h.why["similarity"] for h in kb.query("tiling").hits)
        assert len(kb.notices) == 1


def test_index_that_cannot_be_rebuilt_is_an_error_not_a_poorer_result(
    closed: Settings, embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import chromadb

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(chromadb, "PersistentClient", broken)
    with (
        KnowledgeBase.open(closed, embedder=embedder) as kb,
        pytest.raises(IndexUnavailable, match="luck") as caught,
    ):
        kb.query("tiling")
    assert caught.value.hint


READER = """
import sys
sys.path.insert(0, sys.argv[2])
from conftest import HashEmbedder
from kb import KnowledgeBase, Settings
with KnowledgeBase.open(Settings(home=sys.argv[1], exact_passages=0), embedder=HashEmbedder()) as kb:
    for _ in range(20):
        assert any(h.why["similarity"] for h in kb.query("tiling").hits)
    assert not kb.notices, kb.notices
"""


def test_processes_read_while_another_writes(closed: Settings, embedder: Any, store: Store) -> None:
    command = [sys.executable, "-c", READER, str(closed.home), str(Path(__file__).parent)]
    readers = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    with KnowledgeBase.open(closed, embedder=embedder) as kb:
        i = 0
        while any(r.poll() is None for r in readers):
            store(kb, f"new{i}.md", f"tiling number {i}")
            i += 1
            time.sleep(0.05)
    errors = [r.communicate(timeout=60)[1].decode() for r in readers]
    assert [r.returncode for r in readers] == [0, 0], errors


def test_threads_may_query(closed: Settings, embedder: Any) -> None:
    failures: list[BaseException] = []
    with KnowledgeBase.open(closed, embedder=embedder) as kb:

        def work() -> None:
            try:
                for _ in range(5):
                    assert kb.query("tiling").hits
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert failures == []


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from conftest import HashEmbedder
from kb import KnowledgeBase, Settings
kb = KnowledgeBase.open(Settings(home=sys.argv[1], exact_passages=0), embedder=HashEmbedder())
with kb.vectors.exclusive():
    print("locked", flush=True)
    import time
    time.sleep(60)
"""


def test_lock_of_a_killed_process_is_free(closed: Settings, embedder: Any) -> None:
    command = [sys.executable, "-c", WRITER, str(closed.home), str(Path(__file__).parent)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"locked\n"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert reopen(closed, embedder)[0] == []
