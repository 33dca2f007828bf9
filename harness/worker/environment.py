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
    for package in ("torch", "triton"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    compiler = cxx()
    if compiler:
        found["compiler"] = cxx_version(compiler)
    return found
