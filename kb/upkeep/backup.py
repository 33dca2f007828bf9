"""One file that holds a whole home: database, blobs, results of runs, adapters. Indexes are made anew.

A zip file; its last member, `manifest.json`, lists every other one with its size and sha256.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from kb.errors import BackupInvalid, QuotaExceeded, Refused, StoreTooNew
from kb.locks import adapt_lock, file_lock, home_lock, reembed_lock
from kb.migrations import HEAD
from kb.upkeep.gc import SCRATCH
from kb.upkeep.quota import readable

if TYPE_CHECKING:
    from kb.base import KnowledgeBase
    from kb.settings import Settings

FORMAT = 1
_DATABASE = "kernelevolve.db"
_MANIFEST = "manifest.json"
_KEPT = ("blobs", "runs", "adapters", "skills", "skills-local-only")  # caches and indexes can be made again
_OURS = (_DATABASE, *_KEPT)
_NAME = re.compile(r"kernelevolve\.db|(?:blobs|runs|adapters|skills|skills-local-only)/[^\x00\\]+")
_BLOCK = 1 << 20

Progress = Callable[[int, int], None]


def backup(
    kb: KnowledgeBase,
    file: Path,
    *,
    force: bool = False,
    progress: Progress = lambda *_: None,
    waiting: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Write a backup of the home to `file`, read it back and compare. Others may read and search meanwhile.

    Raises Refused where `file` exists, unless `force`, and StoreLocked while another process ingests.
    """
    file = file.expanduser()
    if file.exists() and not force:
        raise Refused(f"{file} exists", "name another file, or --force to replace it")
    if file.resolve().is_relative_to(kb.home.resolve()):
        raise Refused(f"{file} lies in the home that it is to back up", "name a file elsewhere")
    partial = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}.partial")
    snapshot = kb.home / SCRATCH / f"{uuid.uuid4().hex}.db"
    # Under the lock of ingestion nothing removes a blob that the snapshot refers to.
    with home_lock(kb.home, timeout_s=kb.settings.lock_timeout_s, waiting=waiting):
        try:
            snapshot.parent.mkdir(exist_ok=True)
            _snapshot(kb.home / _DATABASE, snapshot)
            members = {_DATABASE: snapshot, **dict(_files(kb.home))}
            _write(partial, members, progress)
            manifest = verify(partial)
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)
            shutil.rmtree(snapshot.parent, ignore_errors=True)
    return {"file": str(file), "bytes": file.stat().st_size, "members": len(manifest["members"])}


def verify(file: Path) -> dict[str, Any]:
    """The manifest of a backup, all of whose members are what it says. Raises BackupInvalid."""
    with _opened(file) as archive:
        manifest = _manifest(archive, file)
        _read(archive, manifest, file, lambda *_: None)
    return manifest


def restore(
    settings: Settings,
    file: Path,
    *,
    force: bool = False,
    progress: Progress = lambda *_: None,
    waiting: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Make the home what the backup in `file` holds. Everything is checked before anything is replaced.

    Raises BackupInvalid, StoreTooNew, QuotaExceeded, StoreLocked while another process ingests, adapts the
    embedding model or embeds with another one, and Refused where the home holds something, unless
    `force`.
    """
    home = settings.home
    file = file.expanduser()
    present = [name for name in _OURS if _holds(home / name)]
    if present and not force:
        raise Refused(
            f"{home} is not empty ({', '.join(present)})",
            "point KERNELEVOLVE_HOME to a new folder, or --force to replace what is there",
        )
    home.mkdir(parents=True, exist_ok=True)
    fresh = home / SCRATCH / "restored"
    patience = settings.lock_timeout_s
    with (
        # Their processes go on for minutes or hours with the files that were there before.
        adapt_lock(home, timeout_s=patience),
        reembed_lock(home, timeout_s=patience),
        home_lock(home, timeout_s=patience, waiting=waiting),
    ):
        shutil.rmtree(fresh.parent, ignore_errors=True)
        try:
            count = _extract(file, fresh, settings.quota, progress)
            _check_database(fresh / _DATABASE, file)
            lock = home / "chroma.lock"
            with file_lock(lock, timeout_s=patience, what="using the vector index"):
                _exchange(home, fresh)
        finally:
            shutil.rmtree(fresh.parent, ignore_errors=True)
    return {"home": str(home), "members": count}


def _exchange(home: Path, fresh: Path) -> None:
    """Rename what is there away and what is new into its place; killed in between, nothing is lost."""
    old = home / f"before-restore-{uuid.uuid4().hex[:8]}"
    old.mkdir()
    moves = [
        (home / name, old / name)
        for name in (_DATABASE, f"{_DATABASE}-wal", f"{_DATABASE}-shm", "chroma", "chroma-next", *_KEPT)
    ] + [(fresh / name, home / name) for name in (*_KEPT, _DATABASE)]
    done: list[tuple[Path, Path]] = []
    try:
        for source, target in moves:
            if source.exists():
                source.rename(target)
                done.append((source, target))
    except BaseException:
        for source, target in reversed(done):
            target.rename(source)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _snapshot(database: Path, target: Path) -> None:
    """SQLite's own online backup: consistent while others write."""
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy, pages=4096)


def _files(home: Path) -> Iterator[tuple[str, Path]]:
    for folder in _KEPT:
        for path in sorted((home / folder).rglob("*")):
            if path.is_file() and not path.is_symlink() and not path.name.endswith(".partial"):
                yield path.relative_to(home).as_posix(), path


def _write(partial: Path, members: dict[str, Path], progress: Progress) -> None:
    entries = []
    partial.parent.mkdir(parents=True, exist_ok=True)
    with partial.open("wb") as file:
        with zipfile.ZipFile(
            file, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False
        ) as archive:
            for done, (name, path) in enumerate(members.items(), start=1):
                # Digested as it is written: a search may be replacing its results meanwhile.
                try:
                    with path.open("rb") as source, archive.open(name, "w", force_zip64=True) as target:
                        checked = _Checked(source)
                        shutil.copyfileobj(checked, target, _BLOCK)
                except FileNotFoundError:
                    continue
                entries.append({"name": name, "size": checked.size, "sha256": checked.digest.hexdigest()})
                progress(done, len(members))
            manifest = {"format": FORMAT, "revision": HEAD, "members": entries}
            archive.writestr(_MANIFEST, json.dumps(manifest))
        file.flush()
        os.fsync(file.fileno())


def _opened(file: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except FileNotFoundError:
        raise BackupInvalid(f"{file} does not exist", "check the path") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise BackupInvalid(f"{file} is no backup: {error}", "it may be incomplete: copy it again") from error


def _manifest(archive: zipfile.ZipFile, file: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(archive.read(_MANIFEST))
        if manifest["format"] != FORMAT:
            raise BackupInvalid(f"{file} has format {manifest['format']}", "use the version that wrote it")
        names = [str(m["name"]) for m in manifest["members"]]
    except (KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise BackupInvalid(f"{file} is no backup of KernelEvolve", "see `kernelevolve kb backup`") from error
    if manifest["revision"] > HEAD:
        raise StoreTooNew(
            f"{file} has schema {manifest['revision']}, which this version does not know",
            "use the version that wrote it",
        )
    for name in names:
        if not _NAME.fullmatch(name) or ".." in name.split("/"):
            raise BackupInvalid(
                f"{file} has a member that no backup has: {name!r}", "it is not to be trusted"
            )
    if _DATABASE not in names:
        raise BackupInvalid(f"{file} holds no database", "it is not to be trusted")
    return manifest


def _read(
    archive: zipfile.ZipFile, manifest: dict[str, Any], file: Path, use: Callable[[str, _Checked], None]
) -> None:
    """Give every member to `use`, and compare what was read with the manifest. Raises BackupInvalid."""
    for member in manifest["members"]:
        name = member["name"]
        try:
            with archive.open(name) as stream:
                checked = _Checked(stream)
                use(name, checked)
                while checked.read():
                    pass
        except (KeyError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
            raise BackupInvalid(f"{file} is damaged at {name}: {error}", "copy it again") from error
        if (checked.size, checked.digest.hexdigest()) != (member["size"], member["sha256"]):
            raise BackupInvalid(f"{file} is damaged: {name} is not what was backed up", "copy it again")


class _Checked:
    """Counts and digests what is read through it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.size = 0
        self.digest = hashlib.sha256()

    def read(self, size: int = _BLOCK) -> bytes:
        block = self._stream.read(size)
        self.size += len(block)
        self.digest.update(block)
        return block


def _extract(file: Path, folder: Path, quota: int | None, progress: Progress) -> int:
    done = 0

    def write(name: str, source: _Checked) -> None:
        nonlocal done
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as copy:
            shutil.copyfileobj(source, copy, _BLOCK)
        done += 1
        progress(done, total)

    with _opened(file) as archive:
        manifest = _manifest(archive, file)
        total = len(manifest["members"])
        needed = sum(int(member["size"]) for member in manifest["members"])
        if quota is not None and needed > quota:
            raise QuotaExceeded(
                f"{file} holds {readable(needed)}, the quota is {readable(quota)}", "raise KERNELEVOLVE_QUOTA"
            )
        _read(archive, manifest, file, write)
    return total


def _check_database(database: Path, file: Path) -> None:
    try:
        with closing(sqlite3.connect(database)) as connection:
            answer = connection.execute("PRAGMA quick_check").fetchone()[0]
    except sqlite3.DatabaseError as error:
        answer = str(error)
    if answer != "ok":
        raise BackupInvalid(f"the database in {file} is damaged: {answer}", "use another backup")


def _holds(path: Path) -> bool:
    return any(path.iterdir()) if path.is_dir() else path.exists()
