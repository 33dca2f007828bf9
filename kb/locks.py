"""An exclusive or shared lock between processes, held on a file; the kernel drops it when a process dies."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from kb.errors import HomeUnavailable, StoreLocked

_POLL_S = 0.05


def home_lock(
    home: Path,
    *,
    timeout_s: float,
    waiting: Callable[[str], None] | None = None,
    needless: Callable[[], bool] | None = None,
) -> AbstractContextManager[bool]:
    """Held by whatever changes documents or tidies up: one process at a time for each home."""
    what = "ingesting into or maintaining this home"
    path = home / "ingest.lock"
    return file_lock(path, timeout_s=timeout_s, what=what, waiting=waiting, needless=needless)


def reembed_lock(home: Path, *, timeout_s: float) -> AbstractContextManager[bool]:
    """Held by the process that prepares the next embedding model; taken before `home_lock`."""
    return file_lock(
        home / "reembed.lock", timeout_s=timeout_s, what="embedding this home with another model"
    )


def adapt_lock(home: Path, *, timeout_s: float) -> AbstractContextManager[bool]:
    """Held by the process that adapts the embedding model; taken before any other."""
    return file_lock(home / "adapt.lock", timeout_s=timeout_s, what="adapting the embedding model")


@contextmanager
def file_lock(
    path: Path,
    *,
    timeout_s: float,
    what: str,
    shared: bool = False,
    waiting: Callable[[str], None] | None = None,
    needless: Callable[[], bool] | None = None,
) -> Iterator[bool]:
    """Hold the lock on `path`; the value is False where it became `needless` while another process had it.

    `waiting` is told once when another process has it.
    Raises StoreLocked after `timeout_s`, HomeUnavailable when the file cannot be opened.
    """
    try:
        handle = path.open("a+b")
    except OSError as error:
        raise HomeUnavailable(f"cannot open {path}: {error.strerror}", "check its permissions") from error
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    deadline = time.monotonic() + timeout_s
    told = False
    with handle:
        while True:
            try:
                fcntl.flock(handle, mode | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if needless is not None and needless():
                    yield False
                    return
                if not told and waiting is not None:
                    waiting(f"another process is {what}; waiting up to {timeout_s:.0f} s")
                told = True
                if time.monotonic() >= deadline:
                    raise StoreLocked(
                        f"another process has been {what} for {timeout_s:.0f} s",
                        "wait for it to finish, or raise KERNELEVOLVE_LOCK_TIMEOUT_S",
                    ) from None
                time.sleep(_POLL_S)
        yield True
