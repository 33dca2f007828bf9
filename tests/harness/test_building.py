"""First calls: one that compiles has the build's time, one that hangs has not."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from harness import Evaluation
from harness.worker.jail import building
from harness.worker.side import ChildFailure, Side
from harness.worker.wire import channel_pair

Evaluate = Callable[..., Evaluation]
Body = Callable[..., str]

SLOW_TO_COMPILE = '''
from harness.native import load_cpp
SOURCE = r"""
#include <map>
#include <regex>
#include <string>
extern "C" void relu(const float* x, float* y, long n) {
    std::map<std::string, std::regex> table{{"a", std::regex("[a-c]+")}};
    float most = std::regex_match("abc", table["a"]) ? 0.0f : 1.0f;
    for (long i = 0; i < n; ++i) y[i] = x[i] > most ? x[i] : most;
}
"""
'''
COMPILES = """
if self.calls == 1:
    type(self).lib = load_cpp(SOURCE, flags=("-O3",))
    type(self).built = time.time()
x = self.ln(x)
y = torch.empty_like(x)
self.lib.relu(x, y, x.numel())
return y
"""


@pytest.mark.parametrize(
    "forever", ["while True: pass", "while True: time.sleep(1)", "while True: torch.relu(x)"]
)
def test_a_first_call_that_hangs_is_ended_soon(
    evaluate: Evaluate, body: Body, norm_problem: str, forever: str
) -> None:
    start = time.monotonic()
    result = evaluate(norm_problem, body(forever), run_limit_s=1.0, build_limit_s=100.0)
    assert result.status == "timeout", result.reason
    assert "longer than 1 s" in result.reason
    assert time.monotonic() - start < 20


@pytest.mark.full
def test_a_first_call_that_compiles_has_the_build_s_time(
    evaluate: Evaluate, body: Body, norm_problem: str
) -> None:
    source = body(COMPILES, top=SLOW_TO_COMPILE)
    result = evaluate(norm_problem, source, run_limit_s=0.7)
    assert result.status == "correct", result.reason
    assert result.spent_s["build"] > 0.7


@pytest.fixture
def child() -> Any:
    """Stands for a child of the judge: what `ended_when_idle` needs of one."""
    made: Any = SimpleNamespace(pid=0, condemned=None)
    made.condemn = lambda kind, reason: setattr(made, "condemned", (kind, reason))
    return made


@pytest.mark.parametrize(
    ("does", "ended"),
    [
        ("time.sleep(9)", True),
        ("while True: kept.append(bytes(1 << 20)); time.sleep(0.02)", False),
        ("import subprocess; subprocess.run(['sleep', '9'])", False),
    ],
)
def test_signs_of_building(monkeypatch: pytest.MonkeyPatch, child: Any, does: str, ended: bool) -> None:
    monkeypatch.setattr(building, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(building, "OWN_PROCESSES", 1)
    source = f"import time; kept = []; print(1, flush=True); {does.replace('while', chr(10) + 'while')}"
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        child.pid = process.pid
        time.sleep(0.1)
        with building.ended_when_idle(child, 0.5):
            time.sleep(1.2)
        subprocess.run(["pkill", "-P", str(process.pid)], check=False)
        process.kill()
    assert (child.condemned is not None) is ended


def test_what_a_device_does_after_forward_has_the_run_s_time() -> None:
    """The child's word that forward has returned shortens the wait, and does nothing else."""
    ours, theirs = channel_pair()
    child: Any = SimpleNamespace(channel=ours, condemned=None, log=SimpleNamespace(flooded=False))
    side = Side(child, random.Random(0))

    def answer(*words: str) -> threading.Thread:
        def run() -> None:
            message = theirs.receive()
            assert message["announce"] is True
            for word in words:
                theirs.send({word: message["nonce"]})

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    first = answer("returned", "done", "copied")
    side.call(0, 60.0, "candidate", 0, finish_s=30.0)
    first.join()
    hangs = answer("returned")
    start = time.monotonic()
    with pytest.raises(ChildFailure, match=r"longer than 0\.2 s"):
        side.call(0, 60.0, "candidate", 0, finish_s=0.2)
    hangs.join()
    assert time.monotonic() - start < 10
