"""Times of kernels, measured before: tables in JSON, JSON lines, CSV or TSV beside the sources.

The documented form is a list of records (JSON: the list itself, or under `measurements`):

    {"kernel": "softmax.py", "target": "nvidia:sm_90", "shape": "4096x4096", "time_ms": 0.021,
     "baseline_ms": 0.034, "speedup": 1.62, "correct": true}

`kernel` is a source's file name, with or without suffix, or the name of a kernel in it; `target`, `shape`,
`baseline_ms`, `speedup` and `correct` may be missing; `time_ms` may where `speedup` is there. Others' tables
are taken as far as their columns say what they are: units in names (`latency_us`, `Time [s]`), in a column
`unit` or in the value (`12 us`), `runtime`, `median`, `gpu`, `device`, `size` and their like. What is left
(`dtype`, `M`, `tflops` …) is kept as `details`.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ingest.errors import Unreadable
from ingest.reading import decode, read_bytes

SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".tsv")
_MAX_BYTES = 5_000_000
_MAX_DETAILS = 12
_FILE_NAME = re.compile(r"timing|result|bench|measure|perf|runtime|latenc|speedup|kernels?$", re.IGNORECASE)
_MILLISECONDS = {"s": 1e3, "sec": 1e3, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ns": 1e-6}
_NUMBER = re.compile(r"([-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([a-zA-Zµμ]*)")
# Columns by the words of their names, in the order in which they are preferred.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "kernel": ("kernel", "file", "source", "path", "candidate", "implementation", "impl", "variant", "name"),
    "target": ("target", "device", "gpu", "hardware", "arch", "architecture", "accelerator", "platform"),
    "shape": ("shape", "shapes", "size", "problem_size", "config", "input", "workload", "problem"),
    "speedup": ("speedup", "speed_up", "ratio"),
    "correct": ("correct", "passed", "valid", "status"),
    "unit": ("unit", "units", "time_unit"),
}
_TIME = {"time", "runtime", "latency", "duration", "elapsed", "median", "mean", "avg", "ms", "us", "ns"}
_BASELINE = {"baseline", "base", "reference", "ref", "eager", "torch", "pytorch", "compile", "native"}
_SPREAD = {"std", "stddev", "min", "max", "p05", "p95", "p99", "ci", "lo", "hi", "error", "total"}
_FALSE = {"false", "0", "no", "fail", "failed", "incorrect", "wrong", "error"}


@dataclass(frozen=True)
class Measurement:
    """One time of one kernel; `line` is its place in the file, 1 where the format has no lines."""

    kernel: str
    target: str = ""
    shape: str = ""
    time_ms: float | None = None
    baseline_ms: float | None = None
    speedup: float | None = None
    correct: bool = True
    details: dict[str, Any] = field(default_factory=dict)
    line: int = 1

    def to_json(self) -> dict[str, Any]:
        """Without what is empty."""
        data = {k: v for k, v in asdict(self).items() if v not in (None, "", {}) and k != "line"}
        return data if not self.correct else {k: v for k, v in data.items() if k != "correct"}

    def sentence(self) -> str:
        """`softmax.py on nvidia:sm_90, 4096x4096: 0.021 ms, baseline 0.034 ms, speedup 1.62`."""
        where = f" on {self.target}" if self.target else ""
        shape = f", {self.shape}" if self.shape else ""
        numbers = [
            f"{self.time_ms:.4g} ms" if self.time_ms is not None else "",
            f"baseline {self.baseline_ms:.4g} ms" if self.baseline_ms is not None else "",
            f"speedup {self.speedup:.3g}" if self.speedup is not None else "",
            "" if self.correct else "not correct",
            *(f"{k} {v}" for k, v in self.details.items()),
        ]
        return f"{self.kernel}{where}{shape}: " + ", ".join(n for n in numbers if n)


def parse(text: str, suffix: str) -> list[Measurement]:
    """The measurements of a table; none when it is something else, or not valid."""
    try:
        found = [_measurement(record, line) for record, line in _records(text, suffix)]
    except (ValueError, csv.Error, RecursionError):
        return []
    return [m for m in found if m is not None]


def tables_beside(path: Path, root: Path) -> list[Path]:
    """The files with measurements in the folder of `path`, and above it within the source."""
    top = root if root.is_dir() else path.parent
    found: list[Path] = []
    for folder in [path.parent, *path.parent.parents]:
        if not folder.is_relative_to(top):
            break
        candidates = _tables_in(folder, _version(folder))
        found += [table for table in candidates if _read(table, _version(table))]
    return found


def of_source(path: Path, root: Path, kernels: Iterable[str] = ()) -> list[Measurement]:
    """What was measured of the source `path`, or of one of the `kernels` in it, the fastest first."""
    names = {path.name, path.stem, *kernels}
    found = []
    for table in tables_beside(path, root):
        for m in _read(table, _version(table)):
            named = m.kernel.replace("\\", "/")
            same_file = named.endswith("/" + path.name) or path.as_posix().endswith("/" + named)
            if named in names or same_file or named.partition("::")[0] in names:
                found.append(m)
    return sorted(found, key=lambda m: (not m.correct, -(m.speedup or 0.0), m.time_ms or math.inf))


def attach(meta: dict[str, Any], path: Path, root: Path | None, kernels: Iterable[str]) -> None:
    """Add `measurements`, and `best_speedup` of the correct ones, to what is known of a source."""
    found = of_source(path, root or path, kernels)
    if found:
        meta["measurements"] = [m.to_json() for m in found]
        speedups = [m.speedup for m in found if m.correct and m.speedup is not None]
        if speedups:
            meta["best_speedup"] = max(speedups)


def _version(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


# A folder of many sources is listed once, and its tables are read once, until they change.
@lru_cache(maxsize=256)
def _tables_in(folder: Path, _listed: tuple[int, int]) -> tuple[Path, ...]:
    try:
        files = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
    except OSError:
        return ()
    lines = (".jsonl", ".ndjson")
    return tuple(p for p in files if p.suffix.lower() in lines or _FILE_NAME.search(p.stem))


@lru_cache(maxsize=256)
def _read(path: Path, _modified: tuple[int, int]) -> tuple[Measurement, ...]:
    try:
        text, _ = decode(read_bytes(path, _MAX_BYTES), path)
    except Unreadable:
        return ()
    return tuple(parse(text, path.suffix.lower()))


# --- formats ---


def _records(text: str, suffix: str) -> Iterator[tuple[Mapping[str, Any], int]]:
    if suffix in (".csv", ".tsv"):
        yield from _csv_records(text, suffix)
    elif suffix in (".jsonl", ".ndjson"):
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                record = json.loads(line)
                if isinstance(record, dict):
                    yield _flat(record), number
    elif suffix == ".json":
        yield from ((_flat(record), 1) for record in _json_records(json.loads(text)))


def _csv_records(text: str, suffix: str) -> Iterator[tuple[Mapping[str, Any], int]]:
    lines = text.split("\n")
    first = next((i for i, x in enumerate(lines) if x.strip() and not x.startswith("#")), 0)
    delimiter = "\t" if suffix == ".tsv" else max(",;\t", key=lines[first].count)
    reader = csv.reader((line + "\n" for line in lines[first:]), delimiter=delimiter, skipinitialspace=True)
    header = next(reader, [])
    before = reader.line_num
    for row in reader:
        if row and not row[0].startswith("#"):
            yield dict(zip(header, row, strict=False)), first + before + 1
        before = reader.line_num


def _json_records(data: Any) -> Iterator[dict[str, Any]]:
    """A list of records; a mapping of kernels to one, to a list of them, or to milliseconds."""
    if isinstance(data, list):
        yield from (record for record in data if isinstance(record, dict))
        return
    if not isinstance(data, dict):
        return
    for key in ("measurements", "results", "timings", "benchmarks", "records", "kernels"):
        if isinstance(data.get(key), list | dict):
            common = {k: v for k, v in data.items() if isinstance(v, str | int | float)}
            yield from (common | record for record in _json_records(data[key]))
            return
    for kernel, value in data.items():
        for record in value if isinstance(value, list) else [value]:
            if isinstance(record, dict):
                yield {"kernel": kernel} | record
            elif isinstance(record, int | float) and not isinstance(record, bool) and Path(kernel).suffix:
                yield {"kernel": kernel, "time_ms": record}


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"time": {"median_ms": 1}}` as `time_median_ms`."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}_")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


# --- columns ---


def _measurement(record: Mapping[str, Any], line: int) -> Measurement | None:
    """None for a record that names no kernel or has no figure."""
    words = {key: re.findall(r"[a-zµμ]+\d*|\d+", _snake(str(key))) for key in record if key is not None}
    used: set[str] = set()

    def take(role: str) -> Any:
        for name in _COLUMNS[role]:
            key = next((k for k, w in words.items() if name in _names(w) and k not in used), None)
            if key is not None and record[key] not in (None, ""):
                used.add(key)
                return record[key]
        return None

    kernel = take("kernel")
    unit = str(take("unit") or "")
    baseline_keys = [k for k, w in words.items() if k not in used and _is_time(w) and _BASELINE & {*w}]
    time_keys = [k for k, w in words.items() if k not in used and _is_time(w) and not _BASELINE & {*w}]
    baseline = _first_time(record, words, baseline_keys, unit)
    time_keys.sort(key=lambda k: "median" not in words[k])
    time = _first_time(record, words, time_keys, unit)
    used.update(baseline_keys[:1] if baseline is not None else [], time_keys[:1] if time is not None else [])
    speedup = _number(take("speedup"))
    if speedup is None and time and baseline:
        speedup = baseline / time
    if kernel is None or isinstance(kernel, list | bool) or (time is None and speedup is None):
        return None
    target, shape, correct = take("target"), take("shape"), take("correct")
    details = {
        str(k): v
        for k, v in record.items()
        if k is not None and k not in used and isinstance(v, str | int | float) and _is_plain(v)
    }
    return Measurement(
        kernel=str(kernel),
        target=str(target or ""),
        shape=_shape(shape),
        time_ms=time,
        baseline_ms=baseline,
        speedup=speedup,
        correct=str(correct).strip().lower() not in _FALSE,
        details=dict(list(details.items())[:_MAX_DETAILS]),
        line=line,
    )


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _names(words: Sequence[str]) -> tuple[str, ...]:
    """`kernel_name` and `kernel` for a column `Kernel Name`."""
    full = "_".join(words)
    return full, "_".join(words[:-1]) if words and words[-1] in ("name", "file", "path", "id") else full


def _is_time(words: Sequence[str]) -> bool:
    other = _SPREAD & {*words} or "speedup" in words or "compile_time" in "_".join(words)
    return not other and bool(_TIME & {*words} or (words and words[-1] in _MILLISECONDS))


def _first_time(
    record: Mapping[str, Any], words: Mapping[str, Sequence[str]], keys: Sequence[str], unit: str
) -> float | None:
    """In milliseconds, which is also what a time without unit is taken for."""
    for key in keys:
        match = _NUMBER.fullmatch(str(record[key]).strip())
        if match:
            named = next((w for w in reversed(words[key]) if w in _MILLISECONDS), "")
            factor = _MILLISECONDS.get(match[2].lower() or named or unit.strip().lower(), 1.0)
            value = float(match[1].replace(",", "")) * factor
            return value if math.isfinite(value) and value > 0 else None
    return None


def _number(value: Any) -> float | None:
    match = _NUMBER.fullmatch(str(value).strip()) if value is not None else None
    number = float(match[1].replace(",", "")) if match and match[2].lower() in ("", "x") else None
    return number if number is not None and math.isfinite(number) and number > 0 else None


def _shape(value: Any) -> str:
    if isinstance(value, list):
        return (
            "x".join(str(v) for v in value) if all(isinstance(v, int) for v in value) else json.dumps(value)
        )
    return "" if value is None else str(value)


def _is_plain(value: str | float) -> bool:
    return len(value) <= 80 if isinstance(value, str) else math.isfinite(value)
