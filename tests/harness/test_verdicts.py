"""Honest and broken candidates: each gets its status and one clear line, and the next one a healthy
verdict.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Evaluation, LocalExecutor
from harness.worker.rounds import _compare_values
from harness.worker.side import Mismatch

Evaluate = Callable[..., Evaluation]
Body = Callable[..., str]


def test_honest_candidate_is_correct(evaluate: Evaluate, norm_problem: str, norm_candidate: str) -> None:
    result = evaluate(norm_problem, norm_candidate)
    assert result.status == "correct", result.reason
    assert result.correctness is not None
    assert result.correctness["rounds"] >= 5
    assert result.correctness["eager_err_vs_fp64"] < 1e-6
    assert not result.timed
    assert result.speedup is None


def test_a_long_source_is_judged_like_a_short_one(
    evaluate: Evaluate, norm_problem: str, norm_candidate: str
) -> None:
    """An unrolled recurrent network makes more text than a candidate may send."""
    assert evaluate(norm_problem, norm_candidate + "# generated\n" * 20_000).status == "correct"


@pytest.mark.parametrize(
    ("candidate", "status", "words"),
    [
        ("class ModelNew(:\n", "compile_error", "syntax error in line 1"),
        ("import torch\n", "compile_error", "no class ModelNew"),
        ("ModelNew = None\nimport nonexistent_module_xyz\n", "runtime_error", "nonexistent_module_xyz"),
        ("def ModelNew(*a):\n    raise ValueError('no such size')\n", "runtime_error", "no such size"),
    ],
)
def test_candidate_that_cannot_start(
    evaluate: Evaluate, norm_problem: str, candidate: str, status: str, words: str
) -> None:
    result = evaluate(norm_problem, candidate)
    assert (result.status, words in result.reason) == (status, True), result.reason
    assert "\n" not in result.reason


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("return self.ln(x)[:, :1]", ("incorrect", "shape")),
        ("return torch.relu(self.ln(x)).half()", ("incorrect", "dtype float16")),
        ("return torch.relu(self.ln(x)).double()", ("incorrect", "dtype float64")),
        ("return torch.relu(self.ln(x)) * float('nan')", ("incorrect", "NaN")),
        ("return torch.relu(self.ln(x)) / 0", ("incorrect", "unexpected")),
        ("return [torch.relu(self.ln(x))]", ("incorrect", "structure")),
        ("return None", ("incorrect", "structure")),
        ("return self", ("incorrect", "type ModelNew")),
        ("y = torch.relu(self.ln(x)); x.zero_(); return y", ("incorrect", "changes its input 0")),
        ("return torch.relu(self.ln(x.bfloat16().float()))", ("incorrect", "differ")),
        ("return torch.relu(self.ln(x)) * 1.00008", ("incorrect", "less precise")),
        ("return torch.nn.functional.layer_norm(x, (128,)).relu()", ("incorrect", "differ")),
        ("raise RuntimeError('broken kernel')", ("runtime_error", "broken kernel")),
        ("sys.exit(3)", ("runtime_error", "SystemExit")),
        ("os._exit(3)", ("runtime_error", "exited with code 3")),
        ("os.abort()", ("runtime_error", "SIGABRT")),
        ("import ctypes; ctypes.string_at(0)", ("runtime_error", "SIGSEGV")),
        ("return torch.empty(1 << 40)", ("runtime_error", "memory limit")),
        ("keep = []\nwhile True: keep.append(bytearray(1 << 26))", ("runtime_error", "memory limit")),
        ("while True: os.write(1, b'x' * 65536)", ("runtime_error", "output limit")),
    ],
)
def test_broken_forward(
    evaluate: Evaluate, body: Body, norm_problem: str, forward: str, expected: tuple[str, str]
) -> None:
    status, words = expected
    result = evaluate(norm_problem, body(forward), memory_limit=512 << 20)
    assert (result.status, words in result.reason) == (status, True), f"{result.status}: {result.reason}"
    assert "\n" not in result.reason
    assert result.speedup is None


def test_hanging_candidate_times_out_and_the_next_is_healthy(
    evaluate: Evaluate, body: Body, norm_problem: str, norm_candidate: str
) -> None:
    start = time.monotonic()
    hangs = body("if self.calls == 3:\n    while True: pass\nreturn torch.relu(self.ln(x))")
    result = evaluate(norm_problem, hangs, run_limit_s=1.0)
    assert result.status == "timeout"
    assert time.monotonic() - start < 10
    ignores_signals = body(
        top="import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass"
    )
    assert evaluate(norm_problem, ignores_signals, build_limit_s=1.0).status == "timeout"
    assert evaluate(norm_problem, norm_candidate).status == "correct"


def test_megabytes_of_output_are_capped_not_fatal(evaluate: Evaluate, body: Body, norm_problem: str) -> None:
    result = evaluate(norm_problem, body("print('y' * 1_000_000)\nreturn torch.relu(self.ln(x))"))
    assert result.status == "correct"
    assert len(result.log) < 20_000


def test_log_of_a_failure_holds_what_was_printed(evaluate: Evaluate, body: Body, norm_problem: str) -> None:
    result = evaluate(norm_problem, body("print('last words', flush=True); os._exit(1)"))
    assert "last words" in result.log


def test_executor_recovers_from_a_dead_worker(
    tmp_path: object, norm_problem: str, norm_candidate: str
) -> None:

    from harness import EvaluationRequest

    request = EvaluationRequest(norm_problem, norm_candidate, timing_budget_s=0.0)
    with LocalExecutor(Path(str(tmp_path))) as executor:
        process = executor._processes["cpu"][0]._process
        assert process is not None
        process.kill()
        process.wait()
        assert executor.evaluate(request).status == "correct"


def test_weights_must_be_loadable(evaluate: Evaluate, norm_problem: str) -> None:
    renamed = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(dim))
        self.shift = torch.nn.Parameter(torch.zeros(dim))
    def forward(self, x):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], self.scale, self.shift).relu()
"""
    assert evaluate(norm_problem, renamed).status == "correct"  # same shapes in the same order
    packed = renamed.replace("torch.ones(dim)", "torch.ones(1, dim)").replace("self.scale,", "self.scale[0],")
    result = evaluate(norm_problem, packed)
    assert result.status == "correct"
    assert [f["rule"] for f in result.flags] == ["weights-not-loaded"]
    without = renamed.replace("self.scale = torch.nn.Parameter(torch.ones(dim))", "pass")
    without = without.replace("self.shift = torch.nn.Parameter(torch.zeros(dim))", "pass")
    without = without.replace(", self.scale, self.shift", "")
    result = evaluate(norm_problem, without)
    assert result.status == "incorrect"
    assert "weights" in result.reason


def test_interrupt_ends_everything(repository: Path, tmp_path: Path, norm_problem: str, body: Body) -> None:
    """Ctrl-C, or the death of the process that asked, leaves no process and no scratch folder behind."""
    name = f"ke-interrupted-{os.getpid()}"
    top = f"import subprocess\nsubprocess.Popen(['{name}', '60'], executable='/bin/sleep')\nopen('up', 'w')\n"
    candidate = body(top=top + "time.sleep(60)")
    (tmp_path / "problem.py").write_text(norm_problem)
    (tmp_path / "candidate.py").write_text(candidate)
    script = f"""
from pathlib import Path
from harness import EvaluationRequest, LocalExecutor
here = Path({str(tmp_path)!r})
with LocalExecutor(here / "cache") as executor:
    print("ready", flush=True)
    problem, candidate = ((here / name).read_text() for name in ("problem.py", "candidate.py"))
    executor.evaluate(EvaluationRequest(problem, candidate))
"""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    for number in (signal.SIGINT, signal.SIGKILL):
        asked = subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=repository,
            env={**os.environ, "TMPDIR": str(scratch)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        _wait_for(lambda: any(scratch.glob("*/*/candidate/up")))
        asked.send_signal(number)
        asked.wait(20)
        _wait_for(lambda: name not in _processes())
        if number == signal.SIGINT:
            assert not list(scratch.glob("kernelevolve-*[!k]/"))


def _processes() -> str:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def _wait_for(condition: Callable[[], bool], limit_s: float = 30.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


BUFFERS = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(6, 6).tril().bool())
        self.register_buffer("order", torch.arange(6).flip(0))
    def forward(self, x):
        return x.masked_fill(~self.mask, 0.0)[:, self.order]
def get_inputs():
    return [torch.randn(4, 6, 6)]
def get_init_inputs():
    return []
"""


def test_buffers_that_are_no_weights_are_loaded_by_name(evaluate: Evaluate, executor: LocalExecutor) -> None:
    blank = BUFFERS.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    blank = blank.replace("torch.ones(6, 6).tril().bool()", "torch.zeros(6, 6, dtype=torch.bool)")
    blank = blank.replace("torch.arange(6).flip(0)", "torch.zeros(6, dtype=torch.int64)")
    assert evaluate(BUFFERS, blank).status == "correct"
    seed = evaluate(BUFFERS, executor.compiler_source(BUFFERS), build_limit_s=300.0)
    assert seed.status == "correct", seed.reason


COUNTED = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(8)
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.randn(32, 8)]
def get_init_inputs():
    return []
"""


def test_state_that_forward_changes(evaluate: Evaluate) -> None:
    same = COUNTED.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    result = evaluate(COUNTED, same)
    assert result.status == "correct", result.reason
    rules = [f["rule"] for f in result.flags]
    assert "mutates-state" in rules
    assert "state-not-updated" not in rules
    frozen = same.replace(
        "return self.norm(x)",
        "n = self.norm\n        return torch.nn.functional.batch_norm(x, None, None, n.weight, n.bias, True)",
    )
    result = evaluate(COUNTED, frozen)
    assert result.status == "correct", result.reason
    assert "state-not-updated" in [f["rule"] for f in result.flags]


@pytest.mark.parametrize(
    "frame",
    [b'{"ok": true}', b'{"state": 3}', b'{"state": [["ln.weight", true]]}', b'{"state": [[1, 2, "x"]]}'],
)
def test_forged_answer_to_the_build(evaluate: Evaluate, body: Body, norm_problem: str, frame: bytes) -> None:
    top = (
        f"frame = ({len(frame)}).to_bytes(4, 'little') + {frame!r}\n"
        "for fd in range(3, 64):\n    try: os.write(fd, frame)\n    except OSError: pass\n"
    )
    result = evaluate(norm_problem, body(top=top))
    assert result.status == "runtime_error", result.reason
    assert "private channel" in result.reason


def test_plain_values_are_compared() -> None:
    nan = float("nan")
    _compare_values([nan, 1.0, "a"], [nan, 1.0 + 1e-9, "a"], "test")
    for wrong in ([nan, 2.0, "a"], [nan, 1.0], [nan, 1.0, "a", 4], [0.0, 1.0, "a"]):
        with pytest.raises(Mismatch):
            _compare_values(wrong, [nan, 1.0, "a"], "test")
