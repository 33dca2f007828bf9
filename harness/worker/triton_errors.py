"""Triton's compile errors as one line: which line of the candidate's file, and what is wrong with it."""

from __future__ import annotations

import traceback
from pathlib import Path

_COMPILER = "triton/compiler/compiler.py"


def describe(error: BaseException, path: str) -> tuple[str, int | None] | None:
    """What Triton's compiler says and the line in `path`, where that can be found; None for other errors.

    Errors of a function that a kernel calls are chained: the innermost one names the cause.
    """
    if not any(c.__name__ == "CompilationError" for c in type(error).__mro__):
        return None
    seen = {id(error)}
    while (cause := error.__cause__) is not None and hasattr(cause, "node") and id(cause) not in seen:
        error = cause
        seen.add(id(error))
    cause = error.__cause__
    text = getattr(error, "error_message", None) or (f"{type(cause).__name__}: {cause}" if cause else "")
    text = " ".join(str(text).split()) or "does not compile"
    row = getattr(getattr(error, "node", None), "lineno", None)
    source = getattr(error, "src", None)
    if row is None or not source or not path:
        return text, None
    return text, _line_in_file(Path(path).read_text(encoding="utf-8"), source, row)


def while_compiling(error: BaseException) -> bool:
    """Whether it was Triton's compiler that failed: passes and parsers raise plain RuntimeErrors, and say on
    standard error what is wrong.
    """
    frames = traceback.extract_tb(error.__traceback__)
    inside = any(f.name == "compile" and f.filename.endswith(_COMPILER) for f in frames)
    return inside and not isinstance(error, OSError)


def _line_in_file(text: str, source: str, row: int) -> int | None:
    """The kernel's source is a dedented piece of the file, from `def` on."""
    wanted = [line.strip() for line in source.splitlines()]
    lines = [line.strip() for line in text.splitlines()]
    for start in range(len(lines) - len(wanted) + 1):
        if lines[start : start + len(wanted)] == wanted:
            return start + row
    return None
