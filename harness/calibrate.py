"""Ceilings of this machine, measured rather than read off a data sheet: copy bandwidth and matrix rates."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.worker import environment
from harness.worker.machine import measuring_alone

NAME = "ceilings.json"  # by device
COPY_BYTES = 256 << 20
MATRIX_SIZE = 1536
REPEATS = 9
DEVICE_LIMIT_S = 120.0


def cpu_ceilings(cache_dir: Path, *, again: bool = False) -> dict[str, Any]:
    """Measured once per CPU and number of threads, then read from `cache_dir`; `again` measures anew.

    `bandwidth_gb_s`: bytes read plus bytes written per second by a large copy, in 1e9 bytes (the memory
    traffic of fetching lines before they are written is not counted). `fp32_gflop_s`: 2 n^3 / t of a matrix
    product. Both are the best of several runs: a ceiling is what the machine can do, not what it does on
    average.
    """
    if not again:
        stored = stored_ceilings(cache_dir)
        if stored is not None:
            return stored
    with measuring_alone("cpu"):
        found = {
            "cpu": environment.cpu_name(),
            "threads": environment.usable_cpus(),
            "bandwidth_gb_s": _copy_rate(),
            "fp32_gflop_s": _matrix_rate(),
        }
    store(cache_dir, _cpu(), found)
    return found


def device_ceilings(cache_dir: Path) -> dict[str, Any]:
    """Measures the first visible CUDA device and keeps what `harness.worker.device.ceilings` found. Raises
    HarnessError.
    """
    root = str(Path(__file__).resolve().parents[1])
    command = [sys.executable, "-m", "harness.worker.device.ceilings"]
    try:
        with measuring_alone("cuda"):
            done = subprocess.run(command, capture_output=True, timeout=DEVICE_LIMIT_S, check=True, cwd=root)
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise HarnessError(
            f"the device's ceilings could not be measured ({type(error).__name__})", "see nvidia-smi"
        ) from error
    store(cache_dir, str(found["device"]), found)
    return found


def stored_ceilings(cache_dir: Path, device: str | None = None) -> dict[str, Any] | None:
    """What was measured on a device of this name, or on this CPU with this number of threads; or None."""
    return _read(cache_dir).get(device or _cpu())


def store(cache_dir: Path, device: str, ceilings: dict[str, Any]) -> None:
    """Keeps what was measured on a device beside what is known of others."""
    cache_dir.mkdir(parents=True, exist_ok=True)
    path = cache_dir / NAME
    scratch = path.with_suffix(".part")
    scratch.write_text(json.dumps({**_read(cache_dir), device: ceilings}, indent=1), encoding="utf-8")
    scratch.replace(path)


def _read(cache_dir: Path) -> dict[str, dict[str, Any]]:
    try:
        found = json.loads((cache_dir / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _cpu() -> str:
    return f"{environment.cpu_name()}, {environment.usable_cpus()} threads"


def _copy_rate() -> float:
    import torch

    source = torch.ones(COPY_BYTES // 4)
    target = torch.zeros_like(source)
    return max(_rate(lambda: target.copy_(source), 2 * COPY_BYTES) for _ in range(REPEATS))


def _matrix_rate() -> float:
    import torch

    a, b = torch.randn(MATRIX_SIZE, MATRIX_SIZE), torch.randn(MATRIX_SIZE, MATRIX_SIZE)
    out = torch.empty_like(a)
    return max(_rate(lambda: torch.mm(a, b, out=out), 2 * MATRIX_SIZE**3) for _ in range(REPEATS))


def _rate(work: Any, amount: float) -> float:
    """Billions per second."""
    start = time.perf_counter()
    work()
    return float(amount / (time.perf_counter() - start) / 1e9)
