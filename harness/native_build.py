"""What the light bindings for C++ and CUDA C++ share: their error, their cache, and compilers run under a
limit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

CACHE_VARIABLE = "KERNELEVOLVE_NATIVE_CACHE"
COMPILE_LIMIT_S = 300.0
_ERRORS_SHOWN = 3


class NativeCompileError(RuntimeError):
    """A compiler refused a source or is missing. The message holds its first errors; `log` is all it said."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def first_errors(log: str) -> str:
    """The first errors of a compiler's log in one line."""
    lines = [line.strip() for line in log.splitlines()]
    found = [line for line in lines if "error:" in line] or [line for line in lines if "error" in line]
    return "; ".join(found[:_ERRORS_SHOWN])


def cache_folder() -> Path:
    """$KERNELEVOLVE_NATIVE_CACHE, else a folder in the user's cache; created."""
    base = os.environ.get(CACHE_VARIABLE)
    if base is None:
        root = os.environ.get("XDG_CACHE_HOME")
        base = str((Path(root) if root else Path.home() / ".cache") / "kernelevolve" / "native")
    folder = Path(base)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run_compiler(command: Sequence[str], folder: str | Path, limit_s: float = COMPILE_LIMIT_S) -> str:
    """Runs a compiler in `folder` and returns what it said; after `limit_s` seconds it is killed together
    with the programs it started. Raises NativeCompileError.
    """
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said = process.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired as error:
        raise NativeCompileError(f"{Path(command[0]).name} took longer than {limit_s:g} s") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    log = said.decode(errors="replace")
    if process.returncode:
        name = Path(command[0]).name
        raise NativeCompileError(first_errors(log) or f"{name} exited with code {process.returncode}", log)
    return log
