"""Hardware counters of a candidate's kernels, by Nsight Compute around a process of its own.

The counters need privileges that a jail takes away: this process keeps its capabilities and its network, and
the evaluation says so. It runs only what has already been found correct, and nothing of it enters the
verdict.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from harness.worker.trial import Trial

TOOL = "ncu"
LAUNCHES = 48  # of one call
TEXT_LIMIT = 1 << 20
# What a diagnosis reads, and no more: each further group of counters costs another replay of every kernel.
# Names: Nsight Compute, "Metrics Reference".
METRICS = (
    "gpu__time_duration.sum",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes.sum",
    "dram__bytes.sum.per_second",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__maximum_warps_per_active_cycle_pct",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
    "lts__t_sector_hit_rate.pct",
    "launch__registers_per_thread",
    "launch__waves_per_multiprocessor",
    "launch__grid_size",
    "launch__sm_count",
    r"regex:smsp__average_warps_issue_stalled_\w+_per_issue_active\.ratio",
)


class NoCounters(Exception):
    """The counters could not be read; the text says why."""


def hardware_counters(trial: Trial) -> str:
    """Nsight Compute's raw page as CSV, one row a launch, of one call on inputs of the problem.

    Raises NoCounters.
    """
    tool = shutil.which(TOOL)
    if tool is None:
        raise NoCounters(f"{TOOL} (Nsight Compute) is not installed")
    folder = trial.scratch.parent / "profile"
    folder.mkdir(exist_ok=True)
    request = trial.request
    (folder / "problem.py").write_text(request.problem, encoding="utf-8")
    (folder / "candidate.py").write_text(request.candidate, encoding="utf-8")
    job = {"seed": trial.model_seed, "device": trial.device, "threads": trial.threads}
    (folder / "job.json").write_text(json.dumps(job))
    report = folder / "counters.csv"
    command = [tool, "--csv", "--page", "raw", "--clock-control", "none", "--profile-from-start", "off"]
    command += ["--launch-count", str(LAUNCHES), "--metrics", ",".join(METRICS), "--log-file", str(report)]
    command += [sys.executable, "-m", "harness.worker.profiling.profiled", str(folder)]
    log = _run(command, folder, request.build_limit_s)
    text = report.read_text(encoding="utf-8", errors="replace") if report.exists() else ""
    table = _table(text)
    if not table:
        raise NoCounters(
            f"{TOOL} read none: {_first_error(text) or _first_error(log) or 'no launch was seen'}"
        )
    return table[:TEXT_LIMIT]


def _run(command: list[str], folder: Path, limit_s: float) -> str:
    root = str(Path(__file__).resolve().parents[3])
    environment = {**os.environ, "PYTHONPATH": root, "TMPDIR": str(folder), "HOME": str(folder)}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        raise NoCounters(f"{TOOL} took longer than {limit_s:g} s") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return output.decode(errors="replace")


def _table(text: str) -> str:
    """The CSV part of the log: from its header on."""
    start = text.find('"ID"')
    return text[start:] if start >= 0 and text.count("\n", start) > 2 else ""


def _first_error(text: str) -> str:
    match = re.search(r"==ERROR==\s*(.+)|^(\w*Error\b.*)", text, re.MULTILINE)
    return next((g for g in match.groups() if g), "")[:300] if match else ""
