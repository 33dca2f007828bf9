"""What `query --diagnosis` is given: the output of `diagnose --json`, one diagnosis of it, or a trace."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.errors import UsageProblem

_LARGEST = 64_000_000  # bytes of a diagnosis; larger files are traces


@dataclass(frozen=True)
class Diagnosed:
    """The diagnosis to ask about. `kernel` and `target` are empty where the file does not say them; `others`
    is the number of kernels that are not asked about.
    """

    diagnosis: dict[str, Any]
    kernel: str
    target: str
    others: int

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "bottleneck": str(self.diagnosis.get("bottleneck") or ""),
            "target": self.target or None,
            "other_kernels": self.others,
        }


def read_diagnosis(path: Path) -> Diagnosed:
    """Of several kernels, the one that takes most of the time.

    Raises UsageProblem, and IngestError for what is neither a diagnosis nor a trace that can be read.
    """
    if not path.is_file():
        raise UsageProblem(f"no such file: {path}", "give what `diagnose --json` wrote, or a trace")
    record = _record(path)
    if record is None:
        from ingest.diagnose import diagnose_file

        record = diagnose_file(path)
    kernels = record.get("kernels", [record])
    if not isinstance(kernels, list) or not all(isinstance(k, dict) for k in kernels) or not kernels:
        raise UsageProblem(f"{path} has no kernels with a diagnosis", "see `kernelevolve diagnose`")
    chosen = max(kernels, key=_time)
    return Diagnosed(chosen, str(chosen.get("name") or ""), str(chosen.get("target") or ""), len(kernels) - 1)


def _record(path: Path) -> dict[str, Any] | None:
    """What is in the file if that is a diagnosis already, perhaps inside of something else."""
    if path.stat().st_size > _LARGEST:
        return None
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    while isinstance(data, dict):
        if "bottleneck" in data or ("kernels" in data and "format" in data):
            return data
        data = data.get("diagnosis")
    return None


def _time(kernel: dict[str, Any]) -> float:
    """Microseconds of all launches; 0 where they are not known."""
    duration, launches = kernel.get("duration_us"), kernel.get("launches", 1)
    if isinstance(duration, int | float) and isinstance(launches, int | float):
        return float(duration) * float(launches)
    return 0.0
