"""CUDA binaries taken apart with NVIDIA's own tools, which come with Triton and with the CUDA toolkit."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

TOOL_LIMIT_S = 60.0
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
# Every kernel from compute capability 8.0 on is shown with the 1 KiB that the driver keeps of each block.
_RESERVED = 1024


@functools.cache
def find(tool: str) -> str | None:
    """`cuobjdump`, `ptxas` or another tool: of the CUDA toolkit, else of Triton."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    folders = [Path(home) / "bin"]
    spec = importlib.util.find_spec("triton")
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).parent / "backends" / "nvidia" / "bin")
    for folder in folders:
        if os.access(folder / tool, os.X_OK):
            return str(folder / tool)
    return shutil.which(tool)


def disassemble(tool: str, cubin: bytes, kernel: str) -> tuple[dict[str, Any], Counter[str], str]:
    """Figures of one kernel of a binary, how often each instruction stands in it, and its SASS."""
    text = _run(tool, cubin, "-res-usage", "-sass")
    usage = _usage(text, kernel)
    listing = text[_start(text, kernel) :]
    full = _INSTRUCTION.findall(listing)
    local = Counter[str]()
    for name in full:
        operation, *modifiers = name.split(".")
        if operation in ("LDL", "STL"):
            local[operation] += next((_BYTES[m] for m in modifiers if m in _BYTES), 4)
    found = {
        "registers": usage.get("REG", 0),
        "spills": {"store_bytes": local["STL"], "load_bytes": local["LDL"]},
        "stack_bytes": usage.get("STACK", 0),
        "shared_bytes": max(0, usage.get("SHARED", 0) - _RESERVED),
    }
    counts = Counter(name.partition(".")[0] for name in full)
    del counts["NOP"]  # padding
    return found, counts, listing


def kernel_names(tool: str, cubin: bytes) -> list[str]:
    """The kernels of a binary."""
    return re.findall(r"^ *Function (\w+):", _run(tool, cubin, "-res-usage"), re.MULTILINE)


def registers(tool: str, cubin: bytes) -> int:
    """The most registers per thread of any kernel in a binary."""
    found = re.findall(r"REG:(\d+)", _run(tool, cubin, "-res-usage"))
    return max(map(int, found), default=0)


def _usage(text: str, kernel: str) -> dict[str, int]:
    block = re.search(rf"^ *Function {re.escape(kernel)}:\s*\n(.*)$", text, re.MULTILINE)
    line = block[1] if block else next((ln for ln in text.splitlines() if "REG:" in ln), "")
    return {name: int(value) for name, value in re.findall(r"(\w+):(\d+)", line)}


def _start(text: str, kernel: str) -> int:
    found = re.search(rf"^\s*Function : {re.escape(kernel)}\s*$", text, re.MULTILINE)
    return found.start() if found else 0


def _run(tool: str, cubin: bytes, *options: str) -> str:
    """What the tool prints. It needs nvdisasm beside it."""
    search = f"{Path(tool).parent}:{os.environ.get('PATH', '')}"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [tool, *options, file.name],
            capture_output=True,
            text=True,
            timeout=TOOL_LIMIT_S,
            check=False,
            env={**os.environ, "PATH": search},
        )
    return done.stdout
