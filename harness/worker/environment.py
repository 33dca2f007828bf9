"""What the machine is: named in every evaluation, so that a number can be judged later."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path


def cpu_name() -> str:
    """The processor's model name, as the kernel tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def usable_cpus() -> int:
    """How many CPUs this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that can be had without driving this machine, or the control group this process is in, out of
    memory; None where nothing tells.
    """
    found = []
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) << 10)
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.strip().split(":", 2)
        if controllers == "":
            top = root / "sys/fs/cgroup"
            names = ("memory.max", "memory.current", "inactive_file ")
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
        else:
            continue
        folder = top / path.lstrip("/")
        found += [left for place in (folder, *folder.parents) if (left := _left(place, names)) is not None]
    return max(0, min(found)) if found else None


def _left(group: Path, names: tuple[str, str, str]) -> int | None:
    """What a control group may still take: its limit less what it uses, page cache not counted."""
    limit, used = ("".join(_lines(group / name)).strip() for name in names[:2])
    if not limit.isdigit() or not used.isdigit():
        return None
    cached = [int(line.split()[1]) for line in _lines(group / "memory.stat") if line.startswith(names[2])]
    return int(limit) - int(used) + sum(cached)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def cxx() -> str | None:
    """The C++ compiler: $CXX, g++ or clang++."""
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        if name and shutil.which(name):
            return name
    return None


@functools.cache
def cxx_version(compiler: str) -> str:
    """First line of `compiler --version`, empty when it cannot be run."""
    try:
        out = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return out.stdout.partition("\n")[0].strip()


@functools.cache
def facts() -> dict[str, str]:
    """Versions and names that an evaluation carries."""
    found = {
        "python": platform.python_version(),
        "cpu": cpu_name(),
        "os": f"{platform.system()} {platform.release()}",
    }
    for package in ("torch", "triton", "nvidia-cutlass-dsl"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    compiler = cxx()
    if compiler:
        found["compiler"] = cxx_version(compiler)
    return found
