"""Nsight Compute's CSV: the wide form of `--page raw` and the long form of the details page and live metrics.

Metric names: https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#metrics-reference
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ingest.errors import Unreadable

FORMAT = "nsight-compute"
_PCT = "pct_of_peak_sustained"
# our name -> what the raw pages and the details page call it; the first one present counts
_NAMES: dict[str, tuple[str, ...]] = {
    "duration_us": ("gpu__time_duration.sum", "GPU Speed Of Light Throughput/Duration"),
    "memory_pct": (
        f"gpu__compute_memory_throughput.avg.{_PCT}_elapsed",
        "GPU Speed Of Light Throughput/Memory Throughput",
    ),
    "dram_pct": (
        f"gpu__dram_throughput.avg.{_PCT}_elapsed",
        f"dram__throughput.avg.{_PCT}_elapsed",
        "GPU Speed Of Light Throughput/DRAM Throughput",
    ),
    "compute_pct": (
        f"sm__throughput.avg.{_PCT}_elapsed",
        "GPU Speed Of Light Throughput/Compute (SM) Throughput",
    ),
    "l2_pct": (f"lts__throughput.avg.{_PCT}_elapsed", "GPU Speed Of Light Throughput/L2 Cache Throughput"),
    "dram_gb_per_s": ("dram__bytes.sum.per_second", "Memory Workload Analysis/Memory Throughput"),
    "dram_mb": ("dram__bytes.sum",),
    "occupancy_pct": (f"sm__warps_active.avg.{_PCT}_active", "Occupancy/Achieved Occupancy"),
    "occupancy_limit_pct": ("sm__maximum_warps_per_active_cycle_pct", "Occupancy/Theoretical Occupancy"),
    "registers_per_thread": ("launch__registers_per_thread", "Launch Statistics/Registers Per Thread"),
    "spilling_requests_pct": (
        "derived__local_spilling_requests_pct",
        "Memory Workload Analysis/Local Memory Spilling Request Overhead",
    ),
    "waves_per_sm": ("launch__waves_per_multiprocessor", "Launch Statistics/Waves Per SM"),
    "blocks": ("launch__grid_size", "Launch Statistics/Grid Size"),
    "multiprocessors": ("launch__sm_count", "Launch Statistics/# SMs"),
    "issue_pct": (f"smsp__issue_active.avg.{_PCT}_active", "Scheduler Statistics/One or More Eligible"),
    "l2_hit_pct": ("lts__t_sector_hit_rate.pct", "Memory Workload Analysis/L2 Hit Rate"),
    "load_bytes_per_sector": ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",),
    "tensor_pct": (
        f"sm__pipe_tensor_cycles_active.avg.{_PCT}_elapsed",
        f"sm__pipe_tensor_cycles_active.avg.{_PCT}_active",
    ),
}
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)_per_issue_active\.ratio")
_NOT_STALLS = {"selected", "not_selected"}
# factors to microseconds, megabytes and gigabytes per second
_TIME = {
    "nsecond": 1e-3,
    "ns": 1e-3,
    "usecond": 1.0,
    "us": 1.0,
    "msecond": 1e3,
    "ms": 1e3,
    "second": 1e6,
    "s": 1e6,
}
_BYTES = {"byte": 1e-6, "Kbyte": 1e-3, "Mbyte": 1.0, "Gbyte": 1e3, "Tbyte": 1e6}


@dataclass
class Launch:
    """One kernel launch. `metrics` uses our names and units; `stalls` are cycles per issued instruction."""

    name: str
    grid: str
    block: str
    capability: str
    first_line: int
    last_line: int
    metrics: dict[str, float] = field(default_factory=dict)
    stalls: dict[str, float] = field(default_factory=dict)


def sniff(text: str) -> bool:
    """Whether one of the first lines is the profiler's CSV header; its preamble may come before."""
    return any(_is_header(line) for line in text[:65536].split("\n")[:200])


def _is_header(line: str) -> bool:
    return line.startswith('"ID","Process ID"') and '"Kernel Name"' in line


def parse(text: str) -> tuple[list[Launch], list[str]]:
    """All launches in order, and one line for each row that could not be read.

    Raises Unreadable when there is no header or no launch.
    """
    lines = text.split("\n")
    at = next((i for i, line in enumerate(lines) if _is_header(line)), None)
    if at is None:
        raise Unreadable("not a Nsight Compute CSV: no header line")
    reader = csv.reader(io.StringIO("\n".join(lines[at:])))
    header = next(reader)
    rows, errors = _rows(reader, header, at)
    wide = "Metric Name" not in header
    launches = list(_wide(rows, header) if wide else _long(rows))
    if not launches:
        raise Unreadable("the trace contains no kernel")
    return launches, errors


def _rows(
    reader: Iterator[list[str]], header: Sequence[str], offset: int
) -> tuple[list[tuple[int, dict[str, str]]], list[str]]:
    """(line number, fields) of complete rows. Rows without a rule may end before the rule's columns."""
    rows, errors = [], []
    needed = header.index("Metric Value") + 1 if "Metric Value" in header else len(header)
    try:
        for row in reader:
            line = offset + reader.line_num  # type: ignore[attr-defined]
            if not row or row[0].startswith("=="):
                continue
            if len(row) < needed:
                errors.append(f"line {line}: {len(row)} of {needed} fields; the file may be cut off")
                continue
            rows.append((line, dict(zip(header, row, strict=False))))
    except csv.Error as error:
        errors.append(f"line {offset + reader.line_num}: {error}")  # type: ignore[attr-defined]
    return rows, errors


def _wide(rows: Sequence[tuple[int, dict[str, str]]], header: Sequence[str]) -> Iterator[Launch]:
    """One row per launch; the row after the header holds the units."""
    units = rows[0][1] if rows and not rows[0][1]["ID"] else dict.fromkeys(header, "")
    for line, row in rows:
        if row["ID"]:
            yield _launch(row, line, line, {n: (row[n], units.get(n, "")) for n in header if row.get(n)})


def _long(rows: Sequence[tuple[int, dict[str, str]]]) -> Iterator[Launch]:
    """One row per metric, launches one after the other."""
    start = 0
    for i in range(1, len(rows) + 1):
        if i < len(rows) and rows[i][1]["ID"] == rows[start][1]["ID"]:
            continue
        values: dict[str, tuple[str, str]] = {}
        for _, row in rows[start:i]:
            name, section = row.get("Metric Name", ""), row.get("Section Name", "")
            if name:
                value = (row["Metric Value"], row.get("Metric Unit", ""))
                # The same name means a share in one section and a rate in another: both stay apart.
                values.setdefault(f"{section}/{name}", value)
                values.setdefault(name, value)
        yield _launch(rows[start][1], rows[start][0], rows[i - 1][0], values)
        start = i


def _launch(row: Mapping[str, str], first: int, last: int, values: Mapping[str, tuple[str, str]]) -> Launch:
    launch = Launch(
        name=row["Kernel Name"],
        grid=row.get("Grid Size", ""),
        block=row.get("Block Size", ""),
        capability=row.get("CC", ""),
        first_line=first,
        last_line=last,
    )
    for ours, names in _NAMES.items():
        for name in names:
            number = _number(*values[name], ours) if name in values else None
            if number is not None:
                launch.metrics[ours] = number
                break
    for name, (value, unit) in values.items():
        stall = _STALL.fullmatch(name)
        if stall and stall[1] not in _NOT_STALLS:
            number = _number(value, unit, "stall")
            if number:
                launch.stalls[stall[1]] = number
    return launch


def _number(value: str, unit: str, ours: str) -> float | None:
    """A value in our unit; None for what is not a number."""
    try:
        number = float(value.replace(",", ""))
    except ValueError:
        return None
    if ours == "duration_us":
        return number * _TIME[unit] if unit in _TIME else None
    if ours == "dram_mb":
        return number * _BYTES[unit] if unit in _BYTES else None
    if ours == "dram_gb_per_s":
        factor = _BYTES.get(unit.partition("/")[0])
        return number * factor * 1e-3 if factor is not None and unit.endswith(("/s", "/second")) else None
    return number
