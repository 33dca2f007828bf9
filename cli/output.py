"""What leaves the process: one JSON document or readable text on stdout, everything else on stderr."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA_VERSION = 1
_json_descriptor: int | None = None


class ReaderGone(Exception):
    """Whoever read standard output has left, as `| head` does; there is nobody to tell."""


@contextlib.contextmanager
def json_stdout(active: bool) -> Iterator[None]:
    """While active, only `emit` reaches the real standard output; file descriptor 1 is standard error."""
    global _json_descriptor  # noqa: PLW0603 - one per process, like sys.stdout itself
    if not active:
        yield
        return
    sys.stdout.flush()
    _json_descriptor = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(_json_descriptor, 1)
        os.close(_json_descriptor)
        _json_descriptor = None


def emit(document: dict[str, Any]) -> None:
    """Write the command's JSON document as one line, with its `schema_version` first. Raises ReaderGone."""
    data = {"schema_version": SCHEMA_VERSION, **jsonable(document)}
    line = (json.dumps(data, separators=(",", ":"), allow_nan=False) + "\n").encode()
    descriptor = 1 if _json_descriptor is None else _json_descriptor
    try:
        while line:
            line = line[os.write(descriptor, line) :]
    except BrokenPipeError:
        raise ReaderGone from None


def jsonable(value: Any) -> Any:
    """Plain JSON values: NaN and infinities become null, paths, times and dataclasses their usual form."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return jsonable({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, dict):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    return value


def out() -> Console:
    """Console for results that a person reads."""
    return _console(stderr=False)


def err() -> Console:
    """Console for progress and messages."""
    return _console(stderr=True)


def note(message: str, style: str = "") -> None:
    """One message on standard error, printed as it is (no markup)."""
    err().print(clean(message), style=style, markup=False, highlight=False, soft_wrap=True)


def clean(text: str) -> str:
    """Text without control characters, so that stored text cannot steer a terminal."""
    return "".join(c if c in "\n\t" or (ord(c) >= 32 and not 127 <= ord(c) < 160) else "\ufffd" for c in text)


def milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f} ms" if value < 10 else f"{value:.1f} ms"


def speedup(value: float | None, interval: tuple[float, float] | list[float] | None = None) -> str:
    """`1.82x [1.79, 1.85]`, or a dash."""
    if value is None:
        return "–"
    return f"{value:.2f}x" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")


_SEVERITY_STYLE = {"reject": "red", "warning": "yellow", "info": "dim"}


def show_flags(console: Console, flags: Sequence[Mapping[str, Any]]) -> None:
    """One line for each flag, the grave ones first."""
    order = [*_SEVERITY_STYLE]
    for flag in sorted(flags, key=lambda f: order.index(f["severity"]) if f["severity"] in order else 0):
        line = f"{flag['severity']:<8} {flag['rule']}: {flag['detail']}"
        style = _SEVERITY_STYLE.get(flag["severity"], "red")
        console.print(clean(line), style=style, markup=False, highlight=False, soft_wrap=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            # The interpreter flushes standard output once more on its way out.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise ReaderGone from None

    # Pipes have no width of their own; 80 columns would cut paths and ids that scripts grep for.
    stream = sys.stderr if stderr else sys.stdout
    return PipeConsole(file=stream, width=None if stream.isatty() or "COLUMNS" in os.environ else 160)
