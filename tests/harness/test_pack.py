"""A packed worker judges where there is Python, torch and Triton and nothing else of ours or of anybody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from harness.bootstrap import unpack
from harness.pack import pack

# What the product needs besides torch and Triton; numpy is optional to torch.
BLOCKER = """
import importlib.metadata, sys
ABSENT = ("pydantic", "typer", "rich", "numpy", "yaml", "sqlmodel", "chromadb", "kb", "cli", "agent")
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
found = importlib.metadata.entry_points
def entry_points(**which):  # Triton finds its back ends through them
    return [] if which.get("group") == "kernelevolve.targets" else found(**which)
importlib.metadata.entry_points = entry_points
"""
CPP_CANDIDATE = """
import torch
from harness.native import load_cpp
lib = load_cpp(r'''
#include <cstdint>
#include "ke_math.h"
extern "C" void twice(const float* x, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i];
}
''')
class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        lib.twice(x, out, x.numel())
        return out
"""
PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + x
def get_inputs():
    return [torch.randn(64)]
def get_init_inputs():
    return []
"""


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A folder with a packed worker, a problem and candidates."""
    pack(tmp_path / "worker.pyz")
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "sitecustomize.py").write_text(BLOCKER)
    (tmp_path / "temporary").mkdir()
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "candidate.py").write_text(CPP_CANDIDATE)
    (tmp_path / "wrong.py").write_text(CPP_CANDIDATE.replace("2 * x", "3 * x"))
    return tmp_path


def run(box: Path, *arguments: str) -> tuple[int, Any, str]:
    """(exit code, the JSON document on the last line, standard error)."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(box),
        "TMPDIR": str(box / "temporary"),
        "PYTHONPATH": str(box / "absent"),
    }
    done = subprocess.run(
        [sys.executable, "worker.pyz", *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=box,
        env=environment,
    )
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    return done.returncode, json.loads(lines[-1]), done.stderr


def test_packed_worker_judges_with_nothing_but_torch(box: Path) -> None:
    code, document, log = run(box, "eval", "problem.py", "candidate.py", "--timing-budget", "0")
    assert (code, document["status"]) == (0, "correct"), (document, log)
    folder = box / "temporary" / f"kernelevolve-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [p.name.split("-")[0] for p in folder.iterdir()] == ["worker"]
    code, document, _ = run(box, "doctor")
    assert code == 0
    assert {"torch", "target: cpu", "target: nvidia:sm_90"} <= {c["name"] for c in document["checks"]}


def test_exit_codes_are_those_of_the_product(box: Path) -> None:
    code, document, _ = run(box, "eval", "problem.py", "nowhere.py")
    assert (code, document["error"]["type"]) == (2, "FileNotFoundError")
    code, document, _ = run(box, "eval", "problem.py", "candidate.py", "--target", "abacus")
    assert (code, document["error"]["type"]) == (2, "TargetUnknown")
    code, document, _ = run(box, "eval", "candidate.py", "candidate.py")
    assert (code, document["status"]) == (2, "invalid_problem")


def test_batch_keeps_what_was_done(box: Path) -> None:
    shared = {"problem": "problem.py", "timing_budget_s": 0}
    jobs = [
        {"id": "done", **shared, "candidate": "candidate.py"},
        {"id": "good", **shared, "candidate": "candidate.py"},
        {"id": "bad", **shared, "candidate": "wrong.py", "rounds": 6},
        {"id": "lost", **shared, "candidate": "nowhere.py"},
        {"id": "odd", **shared, "candidate": "candidate.py", "colour": "red"},
    ]
    (box / "jobs.jsonl").write_text("\n".join(map(json.dumps, jobs)))
    (box / "out.jsonl").write_text('{"id":"done","wall_s":1.0,"evaluation":{"status":"correct"}}\n{"id":"go')
    code, document, log = run(box, "batch", "jobs.jsonl", "--out", "out.jsonl")
    assert code == 3, log
    assert document["statuses"] == {"correct": 1, "incorrect": 1, "harness_error": 2}
    results = [json.loads(line) for line in (box / "out.jsonl").read_text().splitlines()]
    assert [r["id"] for r in results] == ["done", "good", "bad", "lost", "odd"]
    assert "unknown fields: colour" in results[4]["evaluation"]["reason"]
    assert run(box, "batch", "jobs.jsonl", "--out", "out.jsonl")[:2] == (
        0,
        {"schema_version": 1, "out": "out.jsonl", "jobs": 0, "statuses": {}},
    )


def test_unpacked_files_are_mended(tmp_path: Path) -> None:
    archive = tmp_path / "worker.pyz"
    pack(archive)
    root = unpack(archive, tmp_path / "base")
    header = root / "harness" / "include" / "ke_math.h"
    before = header.read_bytes()
    header.write_text("something else")
    (root / "harness" / "native.py").unlink()
    assert unpack(archive, tmp_path / "base") == root
    assert header.read_bytes() == before
    assert (root / "harness" / "native.py").exists()
    assert [p.name for p in (tmp_path / "base").iterdir()] == [root.name]
    assert not (root / "spoilt").exists()


@pytest.mark.parametrize("trap", ["open", "link"])
def test_a_folder_that_others_could_have_filled_is_refused(tmp_path: Path, trap: str) -> None:
    base = tmp_path / "base"
    if trap == "open":
        base.mkdir()
        base.chmod(0o777)
    else:
        (tmp_path / "mine").mkdir(mode=0o700)
        base.symlink_to(tmp_path / "mine")
    pack(tmp_path / "worker.pyz")
    with pytest.raises(PermissionError, match="private"):
        unpack(tmp_path / "worker.pyz", base)


def test_equal_sources_make_equal_archives(tmp_path: Path) -> None:
    pack(tmp_path / "first")
    pack(tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    names = zipfile.ZipFile(tmp_path / "first").namelist()
    assert {"__main__.py", "harness/__main__.py", "harness/include/ke_math.h"} <= set(names)
    assert not [n for n in names if n.endswith(".pyc")]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["first", "second"]
