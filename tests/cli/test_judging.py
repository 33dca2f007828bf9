"""`eval`, `problem check` and `prompt` with the real harness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1

def get_inputs():
    return [torch.randn(64, 257)]

def get_init_inputs():
    return []
"""
CANDIDATE = PROBLEM.replace("class Model(", "class ModelNew(").split("def get_inputs")[0]
EVALUATION_KEYS = {
    *(
        "status",
        "reason",
        "speedup",
        "speedup_ci",
        "baseline",
        "baselines",
        "per_shape",
        "cost",
        "candidate_ms",
    ),
    *("correctness", "flags", "custom_kernel_share", "profile", "target", "device", "environment", "timed"),
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "good.py").write_text(CANDIDATE)
    (tmp_path / "wrong.py").write_text(CANDIDATE.replace("+ 1", "+ 1.5"))
    (tmp_path / "broken.py").write_text(CANDIDATE.replace("forward(self, x):", "forward(self, x)"))
    (tmp_path / "syntax.py").write_text(PROBLEM.replace("forward(self, x):", "forward(self, x)"))
    (tmp_path / "modelless.py").write_text(PROBLEM.replace("class Model(", "class Other("))
    (tmp_path / "raising.py").write_text(
        PROBLEM.replace("return torch.relu(x)", "raise ValueError('no'); return x")
    )
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00\x01" * 99)
    return tmp_path


def test_correct_candidate(cli: Any, files: Path) -> None:
    result = cli("eval", files / "problem.py", files / "good.py", "--json")
    assert result.code == 0, result.err
    assert result.json.keys() >= EVALUATION_KEYS
    assert result.json["status"] == "correct"
    assert result.json["baseline"] == "eager"


def test_verdict_for_people(cli: Any, files: Path) -> None:
    result = cli("eval", files / "problem.py", files / "good.py")
    assert result.code == 0
    assert result.out.startswith("correct")
    for expected in ("speedup against eager", "95 % interval", "candidate", "median", "correctness"):
        assert expected in result.out


@pytest.mark.parametrize(
    ("candidate", "status"), [("wrong.py", "incorrect"), ("broken.py", None), ("empty-model.py", None)]
)
def test_judged_failure(cli: Any, files: Path, candidate: str, status: str | None) -> None:
    (files / "empty-model.py").write_text("x = 1\n")
    result = cli("eval", files / "problem.py", files / candidate, "--json")
    assert result.code == 1
    assert result.json["status"] == status or result.json["status"] in (
        "compile_error",
        "runtime_error",
        "rejected",
    )
    assert result.json["reason"]
    assert cli("eval", files / "problem.py", files / candidate).out.startswith(result.json["status"])


@pytest.mark.parametrize("problem", ["syntax.py", "modelless.py", "raising.py", "empty.py", "binary.py"])
def test_invalid_problem_is_a_verdict_with_exit_code_2(cli: Any, files: Path, problem: str) -> None:
    result = cli("eval", files / problem, files / "good.py", "--json")
    assert result.code == 2
    assert result.json["status"] == "invalid_problem"
    assert result.json["reason"]


@pytest.mark.parametrize(
    "argv",
    [
        ("eval", "missing.py", "good.py"),
        ("eval", "problem.py", "missing.py"),
        ("eval", "problem.py", "."),
        ("eval", "problem.py", "empty.py"),
        ("eval", "problem.py", "binary.py"),
        ("eval", "problem.py", "good.py", "--target", "abacus"),
        ("problem", "check", "missing.py"),
        ("problem", "check", "syntax.py"),
        ("problem", "check", "raising.py"),
        ("prompt", "missing.py"),
        ("prompt", "modelless.py"),
        ("search", "missing.py"),
        ("search", "syntax.py"),
        ("search", "problem.py", "--target", "abacus"),
        ("search", "problem.py", "--generator", "abacus"),
        ("search", "problem.py", "--policy", "abacus"),
        ("search", "--resume", "nope"),
        ("diagnose", "missing.json"),
    ],
    ids=" ".join,
)
def test_wrong_input(library: Any, files: Path, monkeypatch: Any, argv: tuple[str, ...]) -> None:
    monkeypatch.chdir(files)
    result = library(*argv, "--json")
    assert result.code == 2, result.err
    assert set(result.json["error"]) == {"type", "message", "hint"}
    assert "Traceback" not in result.err


def test_wrong_input_for_people(library: Any, files: Path) -> None:
    human = library("search", files / "syntax.py")
    assert human.code == 2
    assert human.out == ""
    error, hint = human.err.splitlines()
    assert error.startswith("error: ")
    assert "syntax error in line" in error
    assert hint.startswith("hint: ")


def test_problem_check(cli: Any, files: Path) -> None:
    document = cli("problem", "check", files / "problem.py", "--json").json
    assert document["inputs"][0]["shape"] == [64, 257]
    assert {"relu", "mul", "add"} <= {
        op for node in document["nodes"] for op in node["op"].replace("_", ".").split(".")
    }
    human = cli("problem", "check", files / "problem.py")
    assert human.code == 0
    assert "64x257" in human.out
    assert "relu" in human.out


def test_prompt(library: Any, files: Path) -> None:
    result = library("prompt", files / "problem.py", "--json")
    document = result.json
    assert result.code == 0, result.err
    assert document.keys() >= {"prompt", "tokens", "slots", "provenance", "digest"}
    assert "torch.relu(x) * 2 + 1" in document["prompt"]
    assert all(entry.keys() >= {"slot", "chunk_id", "citation", "score"} for entry in document["provenance"])
    assert document["provenance"]


def test_prompt_for_people_within_a_budget(library: Any, files: Path) -> None:
    human = library("prompt", files / "problem.py", "--budget", "2500")
    assert human.code == 0, human.err
    assert "torch.relu(x) * 2 + 1" in human.out
    assert "passages" in human.err
    assert "cut for the budget" in human.err
    assert int(human.err.split(" tokens (")[0].split()[-1]) <= 2500
    none = library("prompt", files / "problem.py", "--budget", "500", "--json")
    assert none.code == 2
    assert none.json["error"]["type"] == "BudgetTooSmall"


def test_compiled_for_a_device_that_is_not_here(cli: Any, files: Path) -> None:
    pytest.importorskip("triton")
    (files / "triton.py").write_text(
        "import torch, triton\n"
        "import triton.language as tl\n"
        "@triton.jit\n"
        "def kernel(x, y, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0) * 2 + 1, mask=i < n)\n"
        "class ModelNew(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        y = torch.empty_like(x)\n"
        "        kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)\n"
        "        return y\n"
    )
    target = "amd:gfx942"  # this version runs on no AMD device
    arguments = ("eval", files / "problem.py", files / "triton.py", "--target", target)
    result = cli(*arguments, "--emit", files / "made", "--json")
    assert result.code == 0, result.err
    assert result.json["status"] == "compiled"
    assert not result.json["timed"]
    assert result.json["profile"]["static"][0]["registers"] > 0
    assert list((files / "made").glob("*.amdgcn"))
    result = cli(*arguments)
    assert "registers" in result.out
    assert "occupancy" in result.out


def test_policy_pure(cli: Any, files: Path) -> None:
    """The candidate is right, but torch's operators do its work."""
    result = cli("eval", files / "problem.py", files / "good.py", "--policy", "pure", "--json")
    assert result.code == 1
    assert result.json["status"] == "rejected"
    assert "library-call" in result.json["reason"]
