"""Backups: complete, verified, refused when damaged, and never the loss of what is there."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb import KnowledgeBase, Settings
from kb.errors import BackupInvalid, QuotaExceeded, Refused, StoreLocked, StoreTooNew
from kb.locks import adapt_lock, reembed_lock
from kb.tables import Node, Run
from kb.upkeep import backup as module
from kb.upkeep.backup import backup, restore, verify
from kb.upkeep.check import check

Store = Callable[..., None]


@pytest.fixture
def filled(kb: KnowledgeBase, store: Store) -> KnowledgeBase:
    store(kb, "a.md", "first paragraph about tiling\n\nsecond about vector loads")
    sha = kb.blobs.put("the winner")
    with kb.session() as session:
        session.add(Run(id="r", problem_name="p", problem_sha=sha, target="cpu", policy="", generator=""))
        session.flush()
        session.add(
            Node(id="n", run_id="r", step=0, generator="", source_sha=sha, digest="", status="correct")
        )
        session.commit()
    (kb.home / "runs" / "r").mkdir(parents=True)
    (kb.home / "runs" / "r" / "best.py").write_text("x = 1\n")
    (kb.home / "adapters").mkdir()
    (kb.home / "adapters" / "asked.jsonl").write_text("{}\n")
    return kb


def found(kb: KnowledgeBase) -> list[tuple[str, float]]:
    return [(h.chunk_id, h.score) for h in kb.query("tiling vector").hits]


def test_a_restored_home_answers_as_the_one_that_was_backed_up(
    filled: KnowledgeBase, tmp_path: Path, embedder: Any
) -> None:
    expected = found(filled)
    done = backup(filled, tmp_path / "b.zip")
    assert done["members"] == 5
    assert done["bytes"] == (tmp_path / "b.zip").stat().st_size
    assert not (filled.home / "scratch").exists()
    other = Settings(home=tmp_path / "other")
    restore(other, tmp_path / "b.zip")
    with KnowledgeBase.open(other, embedder=embedder) as kb:
        assert found(kb) == expected
        assert check(kb).problems == []
        with kb.session() as session:
            assert kb.blobs.text(session.get_one(Node, "n").source_sha) == "the winner"
    assert (tmp_path / "other" / "runs" / "r" / "best.py").read_text() == "x = 1\n"
    assert (tmp_path / "other" / "adapters" / "asked.jsonl").read_text() == "{}\n"
    assert {p.name for p in (tmp_path / "other").iterdir()} >= {"kernelevolve.db", "blobs", "runs"}
    assert not any(p.name.startswith("before-restore") for p in (tmp_path / "other").iterdir())


def test_nothing_is_overwritten_unasked(filled: KnowledgeBase, tmp_path: Path, store: Store) -> None:
    file = tmp_path / "b.zip"
    backup(filled, file)
    with pytest.raises(Refused, match="exists"):
        backup(filled, file)
    with pytest.raises(Refused, match="lies in the home"):
        backup(filled, filled.home / "b.zip")
    with pytest.raises(Refused, match="not empty"):
        restore(filled.settings, file)
    store(filled, "later.md", "tiling after the backup")
    filled.close()
    restore(filled.settings, file, force=True)
    with KnowledgeBase.open(filled.settings, embedder=filled.embedder) as kb:
        assert {h.path for h in kb.query("tiling").hits} == {"a.md"}
    backup(filled, file, force=True)


def test_a_quota_holds_for_restoring(filled: KnowledgeBase, tmp_path: Path) -> None:
    backup(filled, tmp_path / "b.zip")
    small = Settings(home=tmp_path / "other", quota="10kB")
    with pytest.raises(QuotaExceeded, match="the quota is 10"):
        restore(small, tmp_path / "b.zip")


def members(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(file: Path, contents: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return file


def _truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-200])


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 255
    file.write_bytes(bytes(data))


def _other_content(file: Path) -> None:
    contents = members(file)
    blob = next(n for n in contents if n.startswith("blobs/"))
    pack(file, contents | {blob: b"something else"})


def _missing_member(file: Path) -> None:
    contents = members(file)
    del contents[next(n for n in contents if n.startswith("blobs/"))]
    pack(file, contents)


def _changed_manifest(**changes: Any) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        contents = members(file)
        manifest = json.loads(contents["manifest.json"]) | changes
        pack(file, contents | {"manifest.json": json.dumps(manifest).encode()})

    return change


def _foreign(file: Path) -> None:
    pack(file, {"a.txt": b"x"})


def _text(file: Path) -> None:
    file.write_text("not a zip file")


def _evil(name: str) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        contents = members(file)
        manifest = json.loads(contents["manifest.json"])
        manifest["members"].append({"name": name, "size": 1, "sha256": "0" * 64})
        pack(file, contents | {"manifest.json": json.dumps(manifest).encode(), name: b"x"})

    return change


def _broken_database(file: Path) -> None:
    import hashlib

    contents = members(file)
    data = contents["kernelevolve.db"][:100] + b"\xff" * 5000 + contents["kernelevolve.db"][5100:]
    manifest = json.loads(contents["manifest.json"])
    entry = next(m for m in manifest["members"] if m["name"] == "kernelevolve.db")
    entry["size"], entry["sha256"] = len(data), hashlib.sha256(data).hexdigest()
    pack(file, contents | {"kernelevolve.db": data, "manifest.json": json.dumps(manifest).encode()})


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (_truncate, BackupInvalid), (_flip, BackupInvalid), (_other_content, BackupInvalid),
        (_missing_member, BackupInvalid), (_foreign, BackupInvalid), (_text, BackupInvalid),
        (_changed_manifest(format=99), BackupInvalid), (_changed_manifest(members=[]), BackupInvalid),
        (_changed_manifest(members=3), BackupInvalid), (_changed_manifest(revision="9999"), StoreTooNew),
        (_evil("blobs/../../x"), BackupInvalid), (_evil("/etc/x"), BackupInvalid),
        (_evil("cache/x"), BackupInvalid), (_broken_database, BackupInvalid), (Path.unlink, BackupInvalid),
    ],
)  # fmt: skip
def test_a_damaged_backup_changes_nothing(
    filled: KnowledgeBase, tmp_path: Path, damage: Callable[[Path], None], error: type[Exception]
) -> None:
    expected = found(filled)
    file = tmp_path / "b.zip"
    backup(filled, file)
    damage(file)
    with pytest.raises(error) as caught:
        restore(filled.settings, file, force=True)
    assert "\n" not in str(caught.value)
    assert found(filled) == expected
    assert check(filled).problems == []
    assert not (filled.home / "scratch").exists()


def test_a_restore_that_fails_in_the_middle_puts_everything_back(
    filled: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "b.zip"
    backup(filled, file)
    expected = found(filled)
    filled.close()
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if "restored" in self.parts and self.name == "kernelevolve.db":
            raise OSError(28, "No space left on device")
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        with pytest.raises(OSError, match="space"):
            restore(filled.settings, file, force=True)
    with KnowledgeBase.open(filled.settings, embedder=filled.embedder) as kb:
        assert found(kb) == expected
        assert kb.notices == []


def test_verification_reads_what_was_written(
    filled: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module._write

    def spoil(partial: Path, *arguments: Any) -> None:
        real(partial, *arguments)
        _flip(partial)

    monkeypatch.setattr(module, "_write", spoil)
    with pytest.raises(BackupInvalid):
        backup(filled, tmp_path / "b.zip")
    assert list(tmp_path.glob("*b.zip*")) == []


READER = """
import sys
sys.path.insert(0, sys.argv[2])
from conftest import HashEmbedder
from kb import KnowledgeBase, Settings
with KnowledgeBase.open(Settings(home=sys.argv[1]), embedder=HashEmbedder()) as kb:
    print("open", flush=True)
    for _ in range(30):
        assert kb.query("tiling").hits
    assert not kb.notices, kb.notices
"""


def test_others_read_while_it_is_backed_up(filled: KnowledgeBase, tmp_path: Path) -> None:
    command = [sys.executable, "-c", READER, str(filled.home), str(Path(__file__).parent)]
    reader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    reader.stdout.readline()
    for i in range(3):
        backup(filled, tmp_path / f"{i}.zip")
    assert reader.communicate(timeout=60)[1] == ""
    assert reader.returncode == 0
    verify(tmp_path / "2.zip")


@pytest.mark.parametrize("lock", [adapt_lock, reembed_lock], ids=["adapt", "reembed"])
def test_a_home_is_not_exchanged_under_a_process_that_works_on_its_model(
    filled: KnowledgeBase, tmp_path: Path, lock: Any
) -> None:
    backup(filled, tmp_path / "b.zip")
    settings = filled.settings.model_copy(update={"lock_timeout_s": 0.1})
    with lock(filled.home, timeout_s=0.0), pytest.raises(StoreLocked, match="model"):
        restore(settings, tmp_path / "b.zip", force=True)
    assert restore(settings, tmp_path / "b.zip", force=True)["members"] > 0
