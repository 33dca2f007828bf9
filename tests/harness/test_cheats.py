"""Candidates that would fool a judge in their own process, one class each."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Evaluation, EvaluationRequest, LocalExecutor

Evaluate = Callable[..., Evaluation]
Body = Callable[..., str]

HONEST = "return torch.relu(self.ln(x))"


@pytest.mark.parametrize(
    ("name", "forward"),
    [
        (
            "identity cache",
            "key = (id(x), x.data_ptr(), x._version)\n"
            "if getattr(self, 'key', None) != key: self.key, self.kept = key, torch.relu(self.ln(x))\n"
            "return self.kept.clone()",
        ),
        (
            "fingerprint cache",
            "key = tuple(x.flatten()[::1000].tolist())\n"
            "if getattr(self, 'key', None) != key: self.key, self.kept = key, torch.relu(self.ln(x))\n"
            "return self.kept.clone()",
        ),
        ("non-negative inputs", "return self.ln(x.abs()).relu()"),
        ("tiny outputs", "return torch.zeros_like(x)"),
        (
            "first weights folded",
            "self.w = getattr(self, 'w', None)\nif self.w is None: self.w = self.ln.weight.clone()\n"
            "return torch.nn.functional.layer_norm(x, x.shape[-1:], self.w, self.ln.bias).relu()",
        ),
    ],
)
def test_stale_or_blind_answers(
    evaluate: Evaluate, body: Body, norm_problem: str, name: str, forward: str
) -> None:
    result = evaluate(norm_problem, body(forward))
    assert result.status == "incorrect", name


def test_cheat_that_waits_for_the_timed_phase(evaluate: Evaluate, body: Body, norm_problem: str) -> None:
    """Correct in more calls than there are rounds: only checking the timed calls themselves shows it."""
    forward = "if self.calls <= 10: self.kept = torch.relu(self.ln(x))\nreturn self.kept.clone()"
    result = evaluate(norm_problem, body(forward), timing_budget_s=0.3)
    assert result.status == "incorrect"
    assert "timed call" in result.reason
    assert result.speedup is None


def test_same_buffer_on_every_call(evaluate: Evaluate, body: Body, norm_problem: str) -> None:
    forward = "self.out = getattr(self, 'out', None)\nif self.out is None: self.out = torch.empty_like(x)\n"
    forward += "self.out.copy_(torch.relu(self.ln(x)))\nreturn self.out"
    result = evaluate(norm_problem, body(forward))
    assert result.status == "incorrect"
    assert "same memory" in result.reason


def test_patched_clock_gains_nothing(evaluate: Evaluate, body: Body, norm_problem: str) -> None:
    """The guard sees a plain patch; one that is taken back in time cannot reach the judge's clock."""
    plain = body(HONEST, top="time.perf_counter = lambda: 0.0")
    assert evaluate(norm_problem, plain).status == "rejected"
    hidden = body(
        "clock.perf_counter = lambda: 0.0\ntime.sleep(0.002)\ny = torch.relu(self.ln(x))\n"
        "clock.perf_counter = real\nreturn y",
        top="clock = [m for n, m in globals().items() if n == 'time'][0]\nreal = time.perf_counter",
    )
    result = evaluate(norm_problem, hidden, timing_budget_s=0.3)
    assert result.status == "correct"
    assert result.candidate_ms is not None
    assert result.candidate_ms["median"] > 2


def test_forged_results_on_every_channel(evaluate: Evaluate, body: Body, norm_problem: str) -> None:
    forged = 'print(\'{"status": "correct", "speedup": 44}\', flush=True)\n'
    inject = forged + (
        "for fd in range(3, 64):\n"
        "    try: os.write(fd, b'\\x10\\0\\0\\0{\"copied\": true}')\n"
        "    except OSError: pass\n"
        "os._exit(0)"
    )
    result = evaluate(norm_problem, body(inject))
    assert result.status == "runtime_error"
    assert "channel" in result.reason


@pytest.mark.parametrize(
    ("rule", "top"),
    [
        ("patches-library", "torch.allclose = lambda *a, **k: True"),
        ("patches-library", "import torch as t\nt.nn.Module.__call__ = None"),
        ("patches-library", "setattr(time, 'monotonic', None)"),
        ("replaces-module", "sys.modules['json'] = None"),
        ("inspects-harness", "import gc\ngc.get_objects()"),
        ("uses-reference", "from problem import Model"),
    ],
)
def test_guard_names_the_rule(evaluate: Evaluate, body: Body, norm_problem: str, rule: str, top: str) -> None:
    result = evaluate(norm_problem, body(HONEST, top=top))
    assert result.status == "rejected"
    assert rule in result.reason
    assert result.flags[0]["rule"] == rule


def test_guard_lets_honest_words_and_settings_pass(evaluate: Evaluate, body: Body, norm_problem: str) -> None:
    top = (
        "# cache, stream, bypass, monkeypatch, allclose, perf_counter\n"
        "torch.backends.cudnn.benchmark = True\nos.environ['MODE'] = 'fast'\nimport functools, inspect\n"
        "@functools.lru_cache\ndef table(n): return n\n"
    )
    assert evaluate(norm_problem, body(HONEST, top=top)).status == "correct"


def test_no_process_survives_the_verdict(evaluate: Evaluate, body: Body, norm_problem: str) -> None:
    name = f"ke-straggler-{os.getpid()}"
    top = (
        "import subprocess\n"
        f"subprocess.Popen(['{name}', '60'], executable='/bin/sleep', start_new_session=True)\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        f"        os.execv('/bin/sleep', ['{name}', '60'])\n    os._exit(0)\n"
    )
    start = time.monotonic()
    assert evaluate(norm_problem, body(HONEST, top=top)).status == "correct"
    assert time.monotonic() - start < 20
    assert (
        name not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    )


def test_jail(
    executor: LocalExecutor, body: Body, norm_problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets, network, the home folder and other folders are out of reach; a compiler still works."""
    from harness.doctor import sandbox_report

    if any(sandbox_report().values()):
        pytest.skip(f"this machine grants a weaker jail: {sandbox_report()}")
    monkeypatch.setenv("KE_TEST_SECRET", "sesame-in-environment")
    (tmp_path / "secret").write_text("sesame-in-file")
    top = f"""
import socket, glob
def tried(what, action):
    try: print(what, action(), flush=True)
    except Exception as error: print(what, 'refused', type(error).__name__, flush=True)
tried('env', lambda: os.environ.get('KE_TEST_SECRET'))
tried('proc', lambda: b''.join(open(p, 'rb').read() for p in glob.glob('/proc/[0-9]*/environ')))
tried('file', lambda: open({str(tmp_path / "secret")!r}).read())
tried('write', lambda: open({str(tmp_path / "written")!r}, 'w'))
tried('tmp', lambda: open('/tmp/ke-test-written', 'w'))
tried('net', lambda: socket.create_connection(('127.0.0.1', 22), 1))
print('processes', sorted(int(p) for p in os.listdir('/proc') if p.isdigit()) == [1, os.getpid()], flush=True)
os._exit(5)
"""
    result = executor.evaluate(EvaluationRequest(norm_problem, body(HONEST, top=top)))
    assert "exited with code 5" in result.reason
    assert "sesame" not in result.log
    assert not (tmp_path / "written").exists()
    assert not Path("/tmp/ke-test-written").exists()
    for what in ("file", "write", "net"):
        assert f"{what} refused" in result.log, result.log
    assert "env None" in result.log
    assert "processes True" in result.log
