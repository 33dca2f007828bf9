"""Archives: zip and tar, unpacked into a scratch folder under limits.

Nothing is trusted: bytes are counted whatever headers announce, names may not lead out, links and devices are
not made, and an archive that would fill the disk or the memory is given up.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from backports import zstd

from ingest.compression import BLOCK, decompressed
from ingest.encodings import guess
from ingest.errors import Unavailable, Unreadable

MAX_MEMBERS = 100_000
MAX_RATIO = 200  # unpacked to packed; text packs to a tenth, logs to a fiftieth
MAX_DEPTH = 2  # an archive in an archive is read, one in that is not
_RATIO_COUNTS_FROM = 16_000_000  # bytes: what is smaller harms nobody
_DIRECTORY_ENTRY = 46 + 256  # bytes of a zip file's directory for each member, generously
_MAX_HEADER = 1 << 20  # tarfile reads a long name or extended header in one piece
_NESTED = ".nested-archive"
_LINK = "a link"
_SUFFIX = re.compile(r"\.(?:zip|tar|tar\.(?:gz|bz2|xz|zst)|tgz|tbz2?|txz|tzst)$", re.IGNORECASE)
_BROKEN: tuple[type[Exception], ...] = (
    zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, struct.error, EOFError, IndexError,
    NotImplementedError, RuntimeError, ValueError, OverflowError, zstd.ZstdError,
)  # fmt: skip


class _Readable(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


@dataclass
class Budget:
    """How many bytes may be unpacked, and how many are left; one for all archives of a run."""

    limit: int
    left: int = -1

    def __post_init__(self) -> None:
        self.left = self.limit if self.left < 0 else self.left


@dataclass
class Unpacked:
    """What `unpack` has written. `problems` are (member, why it was left out), `links` the links among them,
    which hold nothing of their own: what they show is a member, or none of the archive's business. Of members
    that have one name, in `repeated`, the last is read, as if it had been added to replace the others.

    `error` says why reading stopped before the end; empty when it did not.
    """

    members: int = 0
    links: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    error: str = ""


def is_archive(name: str) -> bool:
    """By its name: office documents, wheels and the like are zip files, too."""
    return _SUFFIX.search(name) is not None


def unpack(path: Path, folder: Path, budget: Budget, *, max_member: int) -> Unpacked:
    """Write the members of the archive at `path` below the new folder `folder`.

    The members of an archive `b.zip` inside it are written below a folder `b.zip!`. Links are not made;
    devices, encrypted members, those larger than `max_member` bytes and those whose names lead out are left
    out, too.
    Raises Unreadable for what is no archive or is over a limit, Unavailable where it cannot be read now;
    nothing is left of it then.
    """
    found = Unpacked()
    before = budget.left
    try:
        folder.mkdir(parents=True)
        _Unpacking(found, budget, max_member, folder).run(path, path.name, folder, prefix="", depth=1)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise Unavailable(error.strerror or str(error)) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        budget.left = before
        raise
    if found.error and not found.members:
        shutil.rmtree(folder, ignore_errors=True)
        raise Unreadable(found.error)
    return found


def cited(relative: str) -> str:
    """A member's path below the unpacked folder, as it is cited: `b.zip!/c.md` is `b.zip!c.md`."""
    return re.sub(r"(\.\w+!)/", r"\1", relative)


class _Refused(Exception):
    """One member is left out."""


class _Meter:
    """Counts what comes out of one archive of `packed` bytes."""

    def __init__(self, budget: Budget, packed: int) -> None:
        self._budget = budget
        self._packed = max(1, packed)
        self._total = 0

    def add(self, size: int) -> None:
        self._total += size
        self._budget.left -= size
        if self._total > max(_RATIO_COUNTS_FROM, MAX_RATIO * self._packed):
            raise Unreadable(f"unpacks to more than {MAX_RATIO} times its size: not unpacked")
        if self._budget.left < 0:
            raise Unreadable(
                f"unpacks to too much: all archives of a run may have {self._budget.limit / 1e6:.0f} MB",
                "raise KERNELEVOLVE_MAX_ARCHIVE_MB, or unpack it yourself",
            )


class _Unpacking:
    def __init__(self, found: Unpacked, budget: Budget, max_member: int, root: Path) -> None:
        self._found = found
        self._budget = budget
        self._max_member = max_member
        self._root = root
        self._seen = 0

    def run(self, path: Path, name: str, folder: Path, *, prefix: str, depth: int) -> None:
        """Unpack the file at `path`, which is called `name`; its members are listed with `prefix`."""
        members = _zip_members(path) if name.lower().endswith(".zip") else self._tar_members(path, name)
        meter = _Meter(self._budget, path.stat().st_size)
        try:
            for member, source, size in members:
                self._seen += 1
                if self._seen > MAX_MEMBERS:
                    raise Unreadable(f"more than {MAX_MEMBERS} members: not unpacked")
                try:
                    self._member(member, source, size, folder, meter, prefix=prefix, depth=depth)
                except _Refused as reason:
                    self._found.problems.append((prefix + member, str(reason)))
        except _BROKEN as error:
            what = f"damaged or no archive: {_said(error)}"
            if depth > 1:
                self._found.problems.append((prefix.rstrip("!"), what))
            else:
                self._found.error = what

    def _member(
        self,
        member: str,
        source: _Source | str,
        size: int,
        folder: Path,
        meter: _Meter,
        *,
        prefix: str,
        depth: int,
    ) -> None:
        if source == _LINK:
            self._found.links.append(prefix + member)
            return
        parts = safe_parts(member)
        if isinstance(source, str):
            raise _Refused(source)
        nested = is_archive(parts[-1])
        if nested and depth >= MAX_DEPTH:
            raise _Refused("an archive inside an archive inside an archive is not read")
        limit = self._budget.limit if nested else self._max_member
        if size > limit:
            raise _Refused(f"too large: {size / 1e6:.0f} MB (limit {limit / 1e6:.0f} MB)")
        target = self._root / f"{_NESTED}-{depth}" if nested else folder.joinpath(*parts)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_file():
                self._found.repeated.append(prefix + member)
            with source() as readable, target.open("wb") as file:
                self._copy(readable, file, limit, meter)
        except BaseException as error:
            if target.is_file():
                target.unlink()
            if isinstance(error, _BROKEN) and not isinstance(error, tarfile.TarError | EOFError):
                raise _Refused(f"cannot be unpacked: {error}") from error
            if isinstance(error, FileExistsError | IsADirectoryError | NotADirectoryError):
                raise _Refused("a file and a folder of the same name") from error
            raise
        self._found.members += 1
        if nested:
            inside = folder.joinpath(*parts[:-1], parts[-1] + "!")
            inside.mkdir(parents=True, exist_ok=True)
            self.run(target, parts[-1], inside, prefix=f"{prefix}{'/'.join(parts)}!", depth=depth + 1)
            target.unlink()

    def _copy(self, readable: _Readable, file: IO[bytes], limit: int, meter: _Meter) -> None:
        written = 0
        while block := readable.read(BLOCK):
            written += len(block)
            if written > limit:
                raise _Refused(f"too large: over {limit / 1e6:.0f} MB")
            meter.add(len(block))
            file.write(block)

    def _tar_members(self, path: Path, name: str) -> Iterator[_Member]:
        if name.lower().endswith(".tar"):
            yield from _plain_tar_members(path)
            return
        # Unpacked first: a tar file is read by seeking, which a compressed one only does from its beginning.
        plain = self._root / f"{_NESTED}-{path.name}.tar"
        meter = _Meter(self._budget, path.stat().st_size)
        early: BaseException | None = None
        try:
            with plain.open("wb") as file:
                try:
                    for block in decompressed(path, name):
                        meter.add(len(block))
                        file.write(block)
                except _BROKEN as error:
                    early = error  # what came before the damage is read all the same
                except OSError as error:
                    if error.errno is not None:
                        raise
                    early = tarfile.ReadError(str(error))  # what gzip and bz2 say of damaged data
            yield from _plain_tar_members(plain)
            if early is not None:
                raise early
        finally:
            plain.unlink(missing_ok=True)


class _Source(Protocol):
    def __call__(self) -> Any: ...


# Its name, how to open it (or why not), and the size that its header announces.
_Member = tuple[str, "_Source | str", int]


def _said(error: Exception) -> str:
    """What the reader of the format says, unless it only stumbled."""
    stumbled = isinstance(error, ValueError | IndexError | OverflowError | struct.error)
    return "its headers make no sense" if stumbled or not str(error) else str(error)


def safe_parts(name: str) -> list[str]:
    """The parts of a member's path. Raises _Refused for one that could lead out of the folder."""
    plain = name.replace("\\", "/")
    parts = [part for part in plain.split("/") if part not in ("", ".")]
    if plain.startswith("/") or re.match(r"[A-Za-z]:/", plain):
        raise _Refused("an absolute path")
    if ".." in parts:
        raise _Refused("leads out of the archive")
    if not parts or "\x00" in plain:
        raise _Refused("no usable name")
    if len(parts) > 40 or any(len(os.fsencode(part)) > 250 for part in parts):
        raise _Refused("its name is too long")
    if parts[-1].startswith(_NESTED):
        raise _Refused("no usable name")
    return parts


def _zip_members(path: Path) -> Iterator[_Member]:
    _inspect_directory(path)
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        if len(infos) > MAX_MEMBERS:
            raise Unreadable(f"{len(infos)} members (limit {MAX_MEMBERS}): not unpacked")
        decode = _name_decoder(infos)
        for info in infos:
            kind = stat.S_IFMT(info.external_attr >> 16)
            source: _Source | str = partial(archive.open, info)
            if info.is_dir():
                continue
            if kind not in (0, stat.S_IFREG):
                source = _LINK if kind == stat.S_IFLNK else "a device or another special file"
            elif info.flag_bits & 1:
                source = "encrypted"
            elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2):
                source = f"compression method {info.compress_type} is not read"
            yield decode(info), source, info.file_size


def _name_decoder(infos: Iterable[zipfile.ZipInfo]) -> Callable[[zipfile.ZipInfo], str]:
    """Names that do not say they are UTF-8 are CP437 by the book, and in practice in what their maker's
    system had: all of them together show which. One odd character in a word is no evidence.
    """

    def raw(info: zipfile.ZipInfo) -> bytes:
        return b"" if info.flag_bits & 0x800 else info.filename.encode("cp437", "replace")

    names = b"\n".join(name for info in infos if not (name := raw(info)).isascii())
    try:
        names.decode("utf-8")
        found = "utf-8"
    except UnicodeDecodeError:
        found = guess(names).encoding
    western = found in ("cp1252", "cp1250") or found.startswith("utf-16")
    if western or not (found == "utf-8" or re.search(r"[^\x00-\x7f]{2}", names.decode(found, "replace"))):
        return lambda info: info.filename
    return lambda info: raw(info).decode(found, "replace") if raw(info) else info.filename


def _inspect_directory(path: Path) -> None:
    """Refuse a directory of millions of members before the zip module reads it into memory."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - (1 << 16) - 22))
        tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at >= 0 and len(tail) >= at + 16:
        size = int.from_bytes(tail[at + 12 : at + 16], "little")
        if size == 0xFFFFFFFF or size > MAX_MEMBERS * _DIRECTORY_ENTRY:
            raise Unreadable(f"more than {MAX_MEMBERS} members: not unpacked")


class _Headers:
    """A tar file whose headers may not announce to be huge: they would be read into memory at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_HEADER:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return self._file.read(size)


def _plain_tar_members(path: Path) -> Iterator[_Member]:
    with path.open("rb") as file, tarfile.open(fileobj=_Headers(file), mode="r:") as archive:  # type: ignore[call-overload]
        while (info := archive.next()) is not None:
            archive.members.clear()  # it would keep all of them
            source: _Source | str = partial(archive.extractfile, info)
            if info.isdir():
                continue
            if info.issym() or info.islnk():
                source = _LINK
            elif not info.isreg():
                source = "a device or another special file"
            yield info.name, source, info.size
