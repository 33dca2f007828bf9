"""Content-addressed blobs (sources, logs, prompts, profiles), named by the sha256 of their bytes."""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from kb.errors import BlobMissing, HomeUnavailable, StoreFull

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_DIGEST = re.compile(r"[0-9a-f]{64}")
_NO_SPACE = {28, 122}  # ENOSPC, EDQUOT
_FLUSHES = 8  # at a time


class BlobStore:
    """Blobs below `root` on any fsspec file system (the local one by default)."""

    def __init__(self, root: Path | str, filesystem: AbstractFileSystem | None = None) -> None:
        from fsspec.implementations.local import LocalFileSystem

        self._fs = filesystem or LocalFileSystem(auto_mkdir=True)
        self._local = isinstance(self._fs, LocalFileSystem)
        self._root = str(root).rstrip("/")

    def put(self, content: bytes | str) -> str:
        """Store `content` (text as UTF-8) and return its sha256. Storing it again costs nothing.

        On a local file system it is on the disk when this returns, as rows that refer to it will be.
        """
        return self.put_all([content])[0]

    def put_all(self, contents: Iterable[bytes | str]) -> list[str]:
        """`put` for many: several are flushed at a time, and folders once."""
        blobs = [c.encode("utf-8", "surrogatepass") if isinstance(c, str) else c for c in contents]
        digests = [hashlib.sha256(data).hexdigest() for data in blobs]
        new = {d: data for d, data in zip(digests, blobs, strict=True) if not self._holds(d, len(data))}
        try:
            folders = self._write(new)
            self._flush(folders)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise StoreFull(
                    f"no space left for a blob in {self._root}", "free some disk space"
                ) from error
            raise HomeUnavailable(
                f"cannot write a blob in {self._root}: {error.strerror or error}"
            ) from error
        return digests

    def _write(self, blobs: Mapping[str, bytes]) -> list[str]:
        """Write blobs by digest. Returns the folders that changed, the root last where it got a new one.

        Readers must never see half a blob: it is written aside, flushed and renamed.
        """
        folders = list(dict.fromkeys(self._path(digest).rsplit("/", 1)[0] for digest in blobs))
        created = [folder for folder in folders if not self._fs.exists(folder)]
        for folder in created:
            self._fs.makedirs(folder, exist_ok=True)
        partial = {digest: f"{self._path(digest)}.{uuid.uuid4().hex}.partial" for digest in blobs}
        try:
            for digest, data in blobs.items():
                self._fs.pipe_file(partial[digest], data)
            self._flush(list(partial.values()))
            for digest, path in partial.items():
                self._fs.mv(path, self._path(digest))
        except BaseException:
            for path in partial.values():
                if self._fs.exists(path):
                    self._fs.rm(path)
            raise
        return [*folders, *([self._root] if created else [])]

    def get(self, digest: str) -> bytes:
        """The blob's bytes. Raises BlobMissing, also when they no longer match the digest."""
        try:
            data: bytes = self._fs.cat_file(self._path(digest))
        except FileNotFoundError:
            raise BlobMissing(f"no blob {digest[:12]}… in {self._root}") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise BlobMissing(f"blob {digest[:12]}… is damaged", f"remove {self._path(digest)}")
        return data

    def text(self, digest: str) -> str:
        return self.get(digest).decode("utf-8", "surrogatepass")

    def _holds(self, digest: str, size: int) -> bool:
        """A crash may have left a blob that is too short: that one is written again."""
        return self._size(self._path(digest)) == size and self._touch(self._path(digest))

    def _size(self, path: str) -> int | None:
        """None where there is nothing, or where the file system does not tell."""
        try:
            size: int | None = self._fs.size(path)
        except FileNotFoundError:
            return None
        return size

    def _touch(self, path: str) -> bool:
        """Tidying up must not take an old blob that is about to be referred to. False when it just has."""
        try:
            if self._local:
                os.utime(path)
        except FileNotFoundError:
            return False
        return True

    def _flush(self, paths: Sequence[str]) -> None:
        """The disk takes several at a time."""
        if not self._local:
            return
        if len(paths) == 1:
            _fsync(paths[0])
        elif paths:
            with ThreadPoolExecutor(_FLUSHES) as pool:
                list(pool.map(_fsync, paths))

    def _path(self, digest: str) -> str:
        if not _DIGEST.fullmatch(digest):
            raise BlobMissing(f"{digest[:80]!r} is not a sha256 digest")
        return f"{self._root}/{digest[:2]}/{digest[2:]}"


def _fsync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
