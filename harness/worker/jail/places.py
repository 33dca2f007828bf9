"""Where a candidate may write: its scratch folder, and a /tmp of its own, because so many programs write
there whatever TMPDIR says.

That /tmp is a folder inside the scratch folder, mounted over the machine's: the same limits hold for it,
files there can be executed, nobody else sees it, and it goes with the scratch folder.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

TEMPORARY = Path("/tmp")
COVER = ".tmp"
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC = 0x1, 0x20, 0x1000, 0x4000
_MOUNT_SETATTR = 442  # on all architectures
_AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = -100, 0x8000, 0x1
_KEPT_FLAGS = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME | os.ST_RELATIME
_REFUSALS = ("Permission denied", "Read-only file system", "Operation not permitted")

_libc = ctypes.CDLL(None, use_errno=True)


class Places:
    """Tells a candidate's files from other people's. `installed`: what it may read besides system folders."""

    def __init__(self, scratch: Path, installed: Iterable[str]) -> None:
        self._scratch = tuple(f"{folder}/" for folder in _both([str(scratch)]))
        self._installed = tuple(f"{folder}/" for folder in _both(installed))

    def __contains__(self, file: str) -> bool:
        """Whether a file is where the candidate may have put it."""
        path = os.path.normpath(Path(file).absolute())
        shared = path.startswith(f"{TEMPORARY}/") and not path.startswith(self._installed)
        return shared or path.startswith(self._scratch)

    def apart(self, folder: str) -> bool:
        """Whether the candidate can have put nothing below a folder."""
        below = f"{os.path.normpath(Path(folder).absolute())}/"
        return f"{below}file" not in self and not any(
            own.startswith(below) for own in (*self._scratch, f"{TEMPORARY}/")
        )

    @staticmethod
    def advice(error: BaseException) -> str:
        """Where to write instead, for an error that says that one may not."""
        said = f"{error} {getattr(error, 'stderr', '')}"
        if not any(refusal in said for refusal in _REFUSALS):
            return ""
        return " (files can be written below tempfile.gettempdir(); what is installed can be read)"


def mount_temporary(scratch: Path, reachable: Iterable[str]) -> str:
    """Covers /tmp by a folder of `scratch`; what of `scratch` and `reachable` lies below /tmp stays in place.

    The latter becomes read-only: Landlock grants whatever lies below a folder what it grants the folder.

    To be called in a mount namespace of one's own. Returns an empty string, or why it is not active.
    """
    if TEMPORARY.is_symlink():
        return f"{TEMPORARY} is a link"
    paths = _both(reachable)
    if str(TEMPORARY) in paths:
        return f"{TEMPORARY} itself holds what is to be read"
    cover = scratch / COVER
    kept: list[str] = []
    try:
        cover.mkdir(exist_ok=True)
        for path in sorted(paths):  # a folder before what it holds
            if _is_below(path, [str(TEMPORARY)]) and not _is_below(path, kept) and Path(path).exists():
                place = cover / Path(path).relative_to(TEMPORARY)
                _bind(Path(path), place)
                _protect(place)
                kept.append(path)
        for path in _both([str(scratch)]):
            if _is_below(path, [str(TEMPORARY)]):
                _bind(Path(path), cover / Path(path).relative_to(TEMPORARY))
        _bind(cover, TEMPORARY)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _both(paths: Iterable[str]) -> list[str]:
    """Each path as it was given, and where it leads."""
    return list(
        dict.fromkeys(str(p) for path in paths for p in (Path(path).absolute(), Path(path).resolve()))
    )


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _bind(source: Path, target: Path) -> None:
    """Shows `source`, with all that is mounted below it, at `target`; raises OSError."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _check(_libc.mount(bytes(source), bytes(target), None, ctypes.c_ulong(_MS_BIND | _MS_REC), None))


def _protect(place: Path) -> None:
    """Makes a mount read-only, with all below it; at least itself on older kernels. Raises OSError."""
    attributes = struct.pack("QQQQ", _ATTR_RDONLY, 0, 0, 0)
    size = ctypes.c_size_t(len(attributes))
    if _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, bytes(place), _AT_RECURSIVE, attributes, size):
        kept = os.statvfs(place).f_flag & _KEPT_FLAGS  # what a user namespace may not take away
        flags = ctypes.c_ulong(_MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept)
        _check(_libc.mount(None, bytes(place), None, flags, None))


def _check(failed: int) -> None:
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
