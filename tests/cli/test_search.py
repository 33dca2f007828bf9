"""`kernelevolve search`: the main job through the command line, interruption included."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

RESULT_KEYS = {"run_id", "best", "steps", "valid", "stop_reason", "tokens", "cost_usd", "elapsed_s"}
BEST_KEYS = {"node_id", "speedup", "speedup_ci", "baselines", "path"}
PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features))

    def forward(self, x):
        return torch.softmax(torch.relu(x) * self.gain, dim=-1)

def get_inputs():
    return [torch.randn(512, 1024)]

def get_init_inputs():
    return [1024]
"""


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "relu_gain_softmax.py"
    path.write_text(PROBLEM)
    return path


@pytest.mark.full
def test_search_from_problem_to_report(library: Any, problem: Path) -> None:
    result = library("search", problem, "--steps", "3", "--json")
    document = result.json
    assert result.code == 0, result.err
    assert document.keys() >= RESULT_KEYS
    assert document["best"].keys() >= BEST_KEYS
    assert document["steps"] == 3
    assert "class ModelNew" in Path(document["best"]["path"]).read_text()
    assert document["run_id"] in Path(document["report"]).read_text()
    assert [line for line in result.err.splitlines() if line.startswith("step 3/3")]

    again = library("search", "--resume", document["run_id"])
    assert again.code == 0
    paths = (document["best"]["path"], document["report"])
    for expected in ("baseline eager", "torch.compile", "best", "95 %", *paths):
        assert expected in again.out

    runs = library("runs", "list", "--json").json["runs"]
    assert runs[0]["run_id"] == document["run_id"]
    assert runs[0]["steps"] == 3
    node = library("prompt", problem, "--parent", document["best"]["node_id"], "--json")
    assert node.code == 0, node.err
    assert "class ModelNew" in node.json["prompt"]
    assert library("runs", "show", "last").code == 0

    replayed = library("prompt", "--replay", document["best"]["node_id"], "--json")
    sent = library("prompt", "--replay", document["best"]["node_id"], "--as-sent", "--json")
    assert replayed.code == sent.code == 0, replayed.err
    assert replayed.json["prompt"] == sent.json["prompt"]
    assert replayed.json["knowledge_unchanged"]
    assert hashlib.sha256(replayed.json["prompt"].encode()).hexdigest() == replayed.json["digest"]
    assert library("prompt", "--replay", document["best"]["node_id"]).out == sent.json["prompt"]
    for wrong in ([], [problem], ["--budget", "2000"]):
        assert library("prompt", *(["--replay", "nobody", *wrong] if wrong else ["--as-sent"])).code == 2


def test_a_plan_spends_nothing(library: Any, problem: Path) -> None:
    before = library("runs", "list", "--json").json["runs"]
    document = library("search", problem, "--plan", "--steps", "8", "--json").json
    assert (document["steps"], document["tokens"]["expected"], document["cost_usd"]["high"]) == (8, 0, 0)
    assert document["time_s"]["low"] < document["time_s"]["high"]
    human = library("search", problem, "--plan", "--steps", "8")
    assert human.code == 0
    assert "recipe asks no model" in human.out
    assert library("runs", "list", "--json").json["runs"] == before


def test_interrupted_search_can_be_resumed(library_home: Path, problem: Path, start_process: Any) -> None:
    argv = ["--home", str(library_home), "search", str(problem), "--steps", "50", "--json"]
    process = start_process(*argv)
    run_id = ""
    for line in process.stderr:
        if line.startswith("run "):
            run_id = line.split()[1].rstrip(":")
        if line.startswith("step 1/50"):
            break
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does: every process of the group gets it
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    error = json.loads(out)["error"]
    assert error["type"] == "Interrupted"
    assert error["hint"] == f"kernelevolve search --resume {run_id}"
    assert not _alive_in_group(process.pid)

    show = start_process("--home", str(library_home), "runs", "show", run_id, "--json")
    document = json.loads(show.communicate(timeout=60)[0])
    assert document["state"] == "interrupted"
    assert document["nodes"]


def _alive_in_group(group: int) -> bool:
    for _ in range(50):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--generator", "nope"], "unknown generator 'nope'"),
        (["--generator", "recipe,recipe"], "named twice"),
        (["--generator", "recipe", "--generator", "recipe"], "named twice"),
        (["--parameter", "temperature"], "is not NAME=VALUE"),
        (["--parameter", "temperature=1"], "recipe takes no parameters"),
        (["--base-url", "http://127.0.0.1:1/v1"], "takes no base URL"),
        (["--generator", "replay:nope"], "no run with id 'nope'"),
        (["--warm-start", "often"], "warm_start must be a probability or adaptive"),
    ],
)
def test_who_writes_candidates_is_checked_first(
    library: Any, problem: Path, options: list[str], said: str
) -> None:
    result = library("search", problem, *options, "--json")
    assert result.code == 2
    assert said in result.json["error"]["message"]


@pytest.mark.full
def test_models_of_a_server_and_then_another(
    library: Any, problem: Path, chat_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chat_server import completion, failure

    kernel = PROBLEM.split("def get_inputs", maxsplit=1)[0].replace("class Model(", "class ModelNew(")
    monkeypatch.setenv("KERNELEVOLVE_PRICES", '{"openai:m": {"input": 2, "output": 10}}')
    server = chat_server(script=[completion(f"HYPOTHESIS: none\n```python\n{kernel}```"), failure(401)])
    argv = ["--generator", f"openai:m@{server.url}", "--parameter", "temperature=0.5", "--stream"]
    result = library("search", problem, "--steps", "2", *argv, "--json")
    assert (result.code, result.json["error"]["type"]) == (3, "ModelError")
    assert server.requests[0]["temperature"] == 0.5
    assert server.requests[0]["stream"] is True
    run = library("runs", "list", "--json").json["runs"][0]
    second = chat_server(lambda _: completion(f"```python\n{kernel}X = 1\n```"))
    resumed = library("search", "--resume", run["run_id"], "--generator", f"openai:m@{second.url}", "--json")
    assert resumed.code == 0, resumed.err
    assert (resumed.json["steps"], resumed.json["tokens"]) == (2, 240)
    assert resumed.json["cost_usd"] == pytest.approx(2 * (100 * 2 + 20 * 10) / 1e6)
