from __future__ import annotations

import errno
import hashlib
from pathlib import Path
from typing import Any

import fsspec
import pytest

from kb.blobs import BlobStore
from kb.errors import BlobMissing, StoreFull


def test_round_trip_by_digest(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    digest = blobs.put("grüße\x00\ud800")
    assert blobs.text(digest) == "grüße\x00\ud800"
    assert blobs.put(b"abc") == hashlib.sha256(b"abc").hexdigest()
    assert blobs.put(b"abc") == hashlib.sha256(b"abc").hexdigest()
    assert not list(tmp_path.rglob("*.partial"))


def test_other_file_systems(tmp_path: Path) -> None:
    blobs = BlobStore("/blobs", fsspec.filesystem("memory"))
    assert blobs.get(blobs.put(b"abc")) == b"abc"


@pytest.mark.parametrize("digest", ["0" * 64, "../../etc/passwd", ""])
def test_missing_blob(tmp_path: Path, digest: str) -> None:
    with pytest.raises(BlobMissing):
        BlobStore(tmp_path).get(digest)


def test_damaged_blob_is_noticed(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    digest = blobs.put(b"abc")
    (tmp_path / digest[:2] / digest[2:]).write_bytes(b"abd")
    with pytest.raises(BlobMissing, match="damaged"):
        blobs.get(digest)


def test_full_disk_leaves_no_half_blob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.local import LocalFileSystem

    def half(self: LocalFileSystem, path: str, value: bytes, **_: Any) -> None:
        Path(path).write_bytes(value[: len(value) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LocalFileSystem, "pipe_file", half)
    blobs = BlobStore(tmp_path / "blobs")
    with pytest.raises(StoreFull):
        blobs.put(b"0123456789")
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_truncated_blob_is_repaired_by_storing_it_again(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    digest = blobs.put(b"abc")
    (tmp_path / digest[:2] / digest[2:]).write_bytes(b"")
    assert blobs.put(b"abc") == digest
    assert blobs.get(digest) == b"abc"


def test_blob_and_its_folder_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr("os.fsync", lambda fd: flushed.append(Path(f"/proc/self/fd/{fd}").readlink()))
    first, second = BlobStore(tmp_path).put_all([b"abc", b"abcd"])
    assert {p.suffix for p in flushed[:2]} == {".partial"}
    assert sorted(flushed[2:]) == [tmp_path, *sorted(tmp_path / d[:2] for d in (first, second))]
