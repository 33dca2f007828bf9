"""The judge's side of a static profile: it asks the candidate's child kernel by kernel, and believes nothing.
Figures are advice for people and searches, never part of a verdict in a candidate's favour.
"""

from __future__ import annotations

import base64
import os
import stat
import time
from pathlib import Path
from typing import Any

from harness.worker.profiling.static import ARTIFACTS, MOST_KERNELS
from harness.worker.side import ChildFailure
from harness.worker.trial import Trial

FIGURES_LIMIT_S = 60.0
MOST_ARTIFACT_BYTES = 64 << 20


def static_profile(trial: Trial) -> dict[str, Any]:
    """What compilers say about the kernels that a candidate has run on a device."""
    try:
        compiled = trial.candidate.ask({"op": "kernels"}, FIGURES_LIMIT_S, what="looking for kernels")
        return read_figures(trial, len(listed(compiled, "kernels")))
    except ChildFailure as failure:
        return {"level": "static", "static": [], "missing": [f"static: {failure}"]}


def read_figures(trial: Trial, count: int) -> dict[str, Any]:
    """A static profile of the first `count` kernels (see `static_profile.figures`), with what is missing.
    Raises ChildFailure.
    """
    deadline = time.monotonic() + FIGURES_LIMIT_S
    found: list[dict[str, Any]] = []
    missing: list[str] = []
    for index in range(min(count, MOST_KERNELS)):
        left = deadline - time.monotonic()
        if left <= 0:
            missing.append(f"figures of {count - index} of {count} kernels: no time was left")
            break
        message = {"op": "figures", "index": index, "limits": trial.target["limits"]}
        answer = trial.candidate.ask(message, max(left, 1.0), what="reading what was compiled")
        if isinstance(answer.get("figures"), dict):
            found.append(answer["figures"])
        missing += [str(m)[:200] for m in listed(answer, "missing") if m not in missing]
    if trial.request.emit:
        trial.candidate.ask({"op": "texts"}, FIGURES_LIMIT_S)
    return {"level": "static", "static": found, "missing": missing}


def listed(answer: dict[str, Any], name: str) -> list[Any]:
    """A list that a candidate's child was asked for; empty where it answers anything else."""
    value = answer.get(name)
    return value if isinstance(value, list) else []


def artifacts(scratch: Path) -> dict[str, str]:
    """What the candidate's child left of its compilers, by file name, in base 64: regular files only, up to a
    limit.
    """
    found: dict[str, str] = {}
    folder, room = scratch / ARTIFACTS, MOST_ARTIFACT_BYTES
    for path in sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        with os.fdopen(fd, "rb") as stream:
            size = os.fstat(fd).st_size
            if stat.S_ISREG(os.fstat(fd).st_mode) and size <= room:
                found[path.name] = base64.b64encode(stream.read(size)).decode()
                room -= size
    return found
