"""Reading what a user names on the command line."""

from __future__ import annotations

from pathlib import Path

from cli.errors import UsageProblem

# A candidate or problem is a source file; anything larger was named by mistake.
MAX_SOURCE_BYTES = 4 << 20


def read_source(path: Path, what: str) -> str:
    """The text of a Python file. Raises UsageProblem with what to do."""
    if not path.exists():
        raise UsageProblem(f"{what} file not found: {path}", "check the path")
    if path.is_dir():
        raise UsageProblem(f"{what} is a folder, not a file: {path}", "name the Python file")
    if path.stat().st_size > MAX_SOURCE_BYTES:
        raise UsageProblem(
            f"{what} is larger than {MAX_SOURCE_BYTES >> 20} MiB: {path}", "name a Python file"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{what} is not UTF-8 text: {path}", "name a Python file") from error
    if not text.strip():
        raise UsageProblem(f"{what} file is empty: {path}", "")
    return text
