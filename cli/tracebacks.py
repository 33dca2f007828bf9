"""A candidate's traceback as its author wants to read it."""

from __future__ import annotations

import re

# Frames of the worker and of torch's dispatch of a module's call: true of every candidate, news to nobody.
_OURS = re.compile(r"/harness/(worker/\w+|native\w*)\.py$|/torch/nn/modules/module\.py$")
_SCRATCH = re.compile(r'"[^"]*/candidate/candidate\.py"')


def own_frames(log: str, name: str = "candidate.py") -> str:
    """The log without frames of the worker; the candidate's file is called `name`."""
    kept: list[str] = []
    skipping = False
    for line in log.splitlines():
        if match := re.match(r'  File "([^"]*)", line \d+', line):
            skipping = bool(_OURS.search(match[1]))
        elif not line.startswith("    "):
            skipping = False
        if not skipping:
            kept.append(_SCRATCH.sub(f'"{name}"', line))
    heads = ("Traceback (most recent call last):",)
    return "\n".join(
        line
        for line, following in zip(kept, [*kept[1:], ""], strict=True)
        if line not in heads or following.startswith("  File")
    )
