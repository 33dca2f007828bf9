"""Git checkouts: which files are tracked, and which commit they are of."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT_S = 60
# A checkout's own configuration may name programs to run; none of them is.
_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


@dataclass(frozen=True)
class Checkout:
    """The tracked files at or below `folder`, which lies in a git work tree."""

    folder: Path
    files: frozenset[str]  # relative to `folder`; a submodule or a linked folder is one entry
    untracked: int  # files that git neither tracks nor ignores
    commit: str  # empty before the first commit
    top: Path  # of the whole work tree

    def has(self, file: Path) -> bool:
        relative = file.relative_to(self.folder)
        return str(relative) in self.files or any(str(p) in self.files for p in relative.parents)

    def leads_out(self, path: Path) -> bool:
        """Whether this is a link out of the work tree: who made it is not who ingests what it shows."""
        try:
            return path.is_symlink() and not path.resolve().is_relative_to(self.top)
        except (OSError, RuntimeError):  # in a circle: reading it will tell
            return False


class GitFailed(Exception):
    """Git is missing or refuses; the message is its own first line."""


def inside(folder: Path) -> bool:
    """Whether `folder` lies in a work tree, by the look of the folders above it."""
    return any((parent / ".git").exists() for parent in (folder, *folder.parents))


def read(folder: Path) -> Checkout | None:
    """What git tracks in `folder`; None where it tracks nothing there. Raises GitFailed."""
    if shutil.which("git") is None:
        raise GitFailed("git is not installed")
    try:
        tracked = _names(_git(folder, "ls-files", "-z", "--cached"))
    except GitFailed as error:
        if "not a git repository" in str(error):  # something else is called .git
            return None
        raise
    if not tracked:
        return None
    others = _names(_git(folder, "ls-files", "-z", "--others", "--exclude-standard"))
    try:
        commit = _git(folder, "rev-parse", "--verify", "HEAD").decode().strip()
    except GitFailed:
        commit = ""
    top = Path(os.fsdecode(_git(folder, "rev-parse", "--show-toplevel").rstrip(b"\n")))
    return Checkout(folder, frozenset(tracked), len(others), commit, top.resolve())


def _names(output: bytes) -> list[str]:
    return [os.fsdecode(name) for name in output.split(b"\x00") if name]


def _git(folder: Path, *arguments: str) -> bytes:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", *_SAFE, "-C", str(folder), *arguments],
            capture_output=True, env=environment, timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitFailed(f"git does not answer: {error}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitFailed(said[0] if said else f"git ended with {done.returncode}")
    return done.stdout
