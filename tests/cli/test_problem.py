"""`problem` with the real harness, and what a weak problem does to a speedup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.tracebacks import own_frames
from cli.verdict import claim

SOUND = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x - 0.5)
def get_inputs():
    return [torch.randn(64, 64)]
def get_init_inputs():
    return []
"""
WEAK = SOUND.replace("x - 0.5", "x - 100").replace("randn", "rand")
CANDIDATE = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {}\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "problems"
    folder.mkdir()
    (folder / "sound.py").write_text(SOUND)
    (folder / "weak.py").write_text(WEAK)
    (tmp_path / "candidate.py").write_text(CANDIDATE.format("torch.relu(x - 100)"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_of_one(cli: Any, files: Path) -> None:
    sound = cli("problem", "check", "problems/sound.py", "--json")
    assert (sound.code, sound.json["weak"], sound.json["findings"]) == (0, False, [])
    weak = cli("problem", "check", "problems/weak.py", "--json")
    assert (weak.code, weak.json["weak"]) == (1, True)
    assert "zeros-pass" in [f["rule"] for f in weak.json["findings"]]
    human = cli("problem", "check", "problems/weak.py")
    assert "weak: " in human.out
    assert "zeros" in human.out


def test_check_of_many(cli: Any, files: Path) -> None:
    both = cli("problem", "check", "problems", "--json")
    assert both.code == 1
    assert (both.json["weak"], both.json["invalid"]) == (1, 0)
    assert [row["weak"] for row in both.json["problems"]] == [False, True]
    (files / "problems" / "broken.py").write_text("class Model: pass\n")
    table = cli("problem", "check", "problems/*.py")
    assert table.code == 2
    rows = [line.split()[:2] for line in table.out.splitlines() if "problems/" in line]
    assert rows == [
        ["problems/broken.py", "invalid"],
        ["problems/sound.py", "sound"],
        ["problems/weak.py", "weak"],
    ]
    nothing = cli("problem", "check", "none/*.py", "--json")
    assert (nothing.code, nothing.json["error"]["type"]) == (2, "ProblemError")


def test_speedup_on_a_weak_problem_is_qualified(cli: Any, files: Path) -> None:
    document = cli("eval", "problems/weak.py", "candidate.py", "--json").json
    assert document["speedup"] is not None, document["reason"]
    assert "problem:zeros-pass" in [flag["rule"] for flag in document["flags"]]
    human = cli("eval", "problems/weak.py", "candidate.py")
    assert "the problem is weak: " in human.out


def test_show_and_list(cli: Any, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("problem", "show", "problems/sound.py").out.strip() == SOUND.strip()
    level = files / "bench" / "level1"
    level.mkdir(parents=True)
    (level / "2_b.py").write_text(SOUND)
    (level / "10_a.py").write_text(SOUND)
    monkeypatch.setenv("KERNELEVOLVE_KERNELBENCH", str(files / "bench"))
    listed = cli("problem", "list", "kernelbench", "--json").json["problems"]
    assert listed == ["kernelbench:1/2", "kernelbench:1/10"]
    assert cli("problem", "show", "kernelbench:1/10", "--json").json["name"] == "10_a"
    assert cli("problem", "list", "problems", "--like", "weak").out.strip() == "problems/weak.py"


def test_init(cli: Any, files: Path) -> None:
    (files / "mine.py").write_text(
        "import torch\nBIAS = 2.0\nclass Scale(torch.nn.Module):\n    def __init__(self, width):\n"
        "        super().__init__()\n        self.weight = torch.nn.Parameter(torch.ones(width))\n"
        "    def forward(self, x):\n        return x * self.weight + BIAS\n"
    )
    argv = (
        "problem",
        "init",
        "mine:Scale",
        "--init",
        "width=8",
        "--input",
        "x=float32[64,8]",
        "-o",
        "new.py",
    )
    made = cli(*argv, "--json")
    assert made.code == 0, made.err
    assert made.json["path"] == "new.py"
    assert "x = torch.randn(64, 8)" in (files / "new.py").read_text()
    again = cli(*argv, "--json")
    assert (again.code, "exists already" in again.json["error"]["message"]) == (2, True)
    wrong = cli("problem", "init", "mine:Scale", "--input", "x=float32[8]", "-o", "other.py")
    assert wrong.code == 2
    assert "missing 1 required positional argument: 'width'" in wrong.err
    assert "Traceback" not in wrong.err
    assert cli("problem", "init", "--json").code == 2


def test_claim_on_a_weak_problem() -> None:
    flags = [{"rule": "problem:zeros-pass", "severity": "warning", "detail": "zeros are accepted"}]
    measured = {"speedup": 2.0, "speedup_ci": [1.9, 2.1], "baseline": "eager", "flags": []}
    assert claim(measured).level == "good"
    weak = claim({**measured, "flags": flags})
    assert weak.level == "warn"
    assert weak.text.endswith("But the problem is weak: zeros are accepted.")
    beaten = claim({**measured, "speedups": {"compile": {"speedup": 0.8, "lo": 0.7, "hi": 0.9}}})
    assert "no better than the compiler" in beaten.text


def test_frames_of_the_worker_are_left_out(cli: Any, files: Path) -> None:
    (files / "raising.py").write_text(CANDIDATE.format("self.helper(x)").replace("helper", "missing_part"))
    human = cli("eval", "problems/sound.py", "raising.py")
    assert 'File "raising.py", line 4, in forward' in human.out
    assert "harness/worker" not in human.out
    assert "_call_impl" not in human.out
    full = cli("--verbose", "eval", "problems/sound.py", "raising.py")
    assert "harness/worker" in full.out
    assert own_frames("plain text\n  of a compiler") == "plain text\n  of a compiler"
