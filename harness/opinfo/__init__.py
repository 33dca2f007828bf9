"""Problems from PyTorch's own operator database (OpInfo): `aten:OP[/VARIANT][:SAMPLE][@ELEMENTS]`.

The database is part of torch's test support and slow to import: another process reads it, and what it answers
is kept.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, ProblemError

PREFIX = "aten:"
ELEMENTS = 1 << 20
LIMIT_S = 300.0
_FORMAT = 1  # of the sources that are kept; counts up whenever they would come out otherwise
_SPEC = re.compile(r"aten:(?P<name>[\w.]+)(/(?P<variant>\w+))?(:(?P<sample>\d+))?(@(?P<elements>\d+))?")
_HINT = "write aten:OP[/VARIANT][:SAMPLE][@ELEMENTS]; names: kernelevolve problem list aten"


class DatabaseUnavailable(HarnessError):
    """Torch's operator database cannot be imported here."""


def problem_source(spec: str, cache_dir: Path | None = None) -> str:
    """The source of the problem that `spec` names.

    Without a sample number: the largest of the operator's samples. Its sizes are scaled up to about ELEMENTS
    elements in the largest input where the operator takes that; `@0` leaves them as they are. Equal specs
    give equal sources. Raises ProblemError, or DatabaseUnavailable.
    """
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise ProblemError(f"{spec} is no operator of OpInfo", _HINT)
    question = {
        "name": match["name"],
        "variant": match["variant"],
        "sample": None if match["sample"] is None else int(match["sample"]),
        "elements": ELEMENTS if match["elements"] is None else int(match["elements"]),
    }
    return str(_ask(question, cache_dir)["source"])


def operators(cache_dir: Path | None = None) -> list[dict[str, Any]]:
    """The database's operators: `name`, `variant` and `dtypes` (those of the CPU) of each."""
    return list(_ask({}, cache_dir)["operators"])


def _ask(question: dict[str, Any], cache_dir: Path | None) -> dict[str, Any]:
    try:
        key = json.dumps([_FORMAT, version("torch"), question], sort_keys=True)
    except PackageNotFoundError as error:
        raise DatabaseUnavailable("torch is not installed", "pip install torch") from error
    kept = None
    if cache_dir is not None:
        kept = Path(cache_dir) / "opinfo" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
        if kept.is_file():
            return dict(json.loads(kept.read_text(encoding="utf-8")))
    answer = _run(question)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(".part")
        partial.write_text(json.dumps(answer), encoding="utf-8")
        partial.replace(kept)
    return answer


def _run(question: dict[str, Any]) -> dict[str, Any]:
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-m", "harness.opinfo.generate"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            cwd=root,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ProblemError(
            f"reading OpInfo took longer than {LIMIT_S:g} s", "try @0 or another sample"
        ) from error
    try:
        answer = dict(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError) as error:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise DatabaseUnavailable(f"OpInfo cannot be read: {last}", "try another operator") from error
    return checked(answer)


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, unless it is an error. Raises ProblemError, DatabaseUnavailable."""
    if "missing" in answer:
        name = answer["missing"]
        raise DatabaseUnavailable(f"torch's operator database needs {name}", f"pip install {name}")
    if "error" in answer:
        raise ProblemError(answer["error"], answer.get("hint", _HINT))
    return answer
