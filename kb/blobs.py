"""Content-addressed blobs (sources, logs, prompts, profiles), named by the sha256 of their bytes."""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from kb.errors import BlobMissing, HomeUnavailable, StoreFull

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_DIGEST = re.compile(r"[0-9a-f]{64}")
_NO_SPACE = {28, 122}  # ENOSPC, EDQUOT


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
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        digest = hashlib.sha256(data).hexdigest()
        target = self._path(digest)
        try:
            if self._size(target) == len(data) and self._touch(target):
                return digest  # a crash may have left a blob that is too short: that one is written again
            # Readers must never see half a blob: it is written aside and renamed.
            partial = f"{target}.{uuid.uuid4().hex}.partial"
            try:
                folder = target.rsplit("/", 1)[0]
                new = not self._fs.exists(folder)
                self._fs.makedirs(folder, exist_ok=True)
                self._fs.pipe_file(partial, data)
                self._flush(partial)
                self._fs.mv(partial, target)
                self._flush(folder)
                if new:
                    self._flush(self._root)
            except BaseException:
                if self._fs.exists(partial):
                    self._fs.rm(partial)
                raise
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise StoreFull(
                    f"no space left for a blob in {self._root}", "free some disk space"
                ) from error
            raise HomeUnavailable(
                f"cannot write a blob in {self._root}: {error.strerror or error}"
            ) from error
        return digest

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

    def _flush(self, path: str) -> None:
        if not self._local:
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _path(self, digest: str) -> str:
        if not _DIGEST.fullmatch(digest):
            raise BlobMissing(f"{digest[:80]!r} is not a sha256 digest")
        return f"{self._root}/{digest[:2]}/{digest[2:]}"
