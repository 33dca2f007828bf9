"""Errors of the CuTe DSL as one line: which line of the candidate's file, and what is wrong with it."""

from __future__ import annotations

import re
import traceback

_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_LABEL = re.compile(r"^(?:error(?:\[\w+\])?|(?:= )?note): *(?:Caused exception: *)?")
_NO_WORDS = re.compile(r"$|-->|[>\d ]*\|")  # where it is, and the text of the file there
# What is reached while a function is traced and compiled, in `base_dsl/dsl.py`.
_COMPILING = {
    "_prepare_compilation",
    "generate_mlir_function_types",
    "generate_original_ir",
    "compile_and_cache",
}


def describe(error: BaseException, path: str) -> tuple[str, int | None] | None:
    """What the DSL says and the line in `path`, where it names one; None for errors of others."""
    if not any(c.__name__ == "DSLBaseError" for c in type(error).__mro__):
        return None
    said = _COLOUR.sub("", str(error)).partition("suggestion:")[0]
    place = re.search(rf"--> {re.escape(path)}:(\d+)", said) if path else None
    words = []
    for line in map(str.strip, said.splitlines()):
        if line.startswith("= note:") and "Caused exception" not in line:
            break
        if not _NO_WORDS.match(line):
            words.append(_LABEL.sub("", line))
    return " ".join(dict.fromkeys(words)) or "failed", int(place[1]) if place else None


def while_compiling(error: BaseException) -> bool:
    """Whether a function was being traced or compiled: what its code raises then passes through unchanged."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(f.name in _COMPILING and f.filename.endswith("base_dsl/dsl.py") for f in frames)
