"""The local executor: failures of the judge itself, texts that reach a person, devices, and the end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import Evaluation, EvaluationRequest, LocalExecutor
from harness.errors import ExecutorError
from harness.target import Target
from harness.targets import cuda_driver
from harness.worker import machine
from harness.worker.text import one_line, printable

Body = Callable[..., str]


def test_a_failure_of_the_judge_is_one_line(
    executor: LocalExecutor, norm_problem: str, norm_candidate: str, capfd: pytest.CaptureFixture[str]
) -> None:
    request = EvaluationRequest(norm_problem, norm_candidate, rounds="five")  # type: ignore[arg-type]
    evaluation = executor.evaluate(request)
    assert evaluation.status == "harness_error"
    assert evaluation.reason.startswith("the judge failed: TypeError: ")
    assert "\n" not in evaluation.reason
    assert "Traceback" in evaluation.log
    assert capfd.readouterr().err == ""


def test_what_a_candidate_says_cannot_steer_a_terminal(
    evaluate: Callable[..., Evaluation], norm_problem: str, body: Body
) -> None:
    text = r"'\x1b[2J\x1b]0;won\x07 \ud800 \u202e correct\nstatus: correct'"
    evaluation = evaluate(
        norm_problem, body(forward=f"print({text}.encode('utf-8', 'replace'))\nraise ValueError({text})")
    )
    assert evaluation.status == "runtime_error"
    for told in (evaluation.reason, evaluation.log):
        assert "\x1b" not in told
        assert "\u202e" not in told
        told.encode()
    assert "\n" not in evaluation.reason
    assert json.loads(json.dumps(evaluation.to_json(), ensure_ascii=False))["reason"] == evaluation.reason


def test_printable_keeps_what_is_text() -> None:
    assert printable({"a": ["é\n\tü", 1, None, ("\r\n",)]}) == {"a": ["é\n\tü", 1, None, ["\n"]]}
    assert printable("\x00\x9b\ud800\u2066") == "\ufffd" * 4
    assert one_line("a\n b\u2028c\x07") == "a b c\ufffd"


def test_a_crash_is_told_in_a_sentence(
    evaluate: Callable[..., Evaluation], norm_problem: str, body: Body
) -> None:
    evaluation = evaluate(norm_problem, body(forward="import ctypes\nctypes.string_at(1)"))
    assert evaluation.reason == "the process was killed by SIGSEGV during forward"


@pytest.fixture
def taken_lock() -> Iterator[None]:
    """Somebody else measures on the CPU."""
    with machine.measuring_alone("cpu"):
        yield


@pytest.mark.usefixtures("taken_lock")
@pytest.mark.parametrize("after_s", [0.2, 4.0])
def test_closing_ends_what_other_threads_wait_for(
    tmp_path: Path, norm_problem: str, norm_candidate: str, after_s: float
) -> None:
    """While torch is being loaded, and while the judge waits for its turn to measure."""
    executor = LocalExecutor(tmp_path)
    found: list[Evaluation] = []
    request = EvaluationRequest(norm_problem, norm_candidate)
    thread = threading.Thread(target=lambda: found.append(executor.evaluate(request)))
    thread.start()
    time.sleep(after_s)
    assert thread.is_alive()
    start = time.monotonic()
    executor.close()
    thread.join(5)
    assert time.monotonic() - start < 5
    assert found[0].status == "harness_error"
    with pytest.raises(ExecutorError, match="closed"):
        executor.check(norm_problem)


def test_each_device_has_its_own_process(tmp_path: Path) -> None:
    target = Target("far:away", "far", "away", (), device="cuda", find_devices=lambda: ("3", "5"))
    executor = LocalExecutor(tmp_path, ahead=None)
    with executor._process(target) as first, executor._process(target) as second:
        assert [first.visible, second.visible] == ["3", "5"]
        waiting = threading.Thread(target=lambda: executor._process(target).__enter__(), daemon=True)
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive()
    waiting.join(5)
    assert not waiting.is_alive()
    executor.close()


def test_names_of_devices_and_their_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    hopper, ampere = cuda_driver.Device("H", (9, 0)), cuda_driver.Device("A", (8, 0))
    monkeypatch.setattr(cuda_driver, "devices", lambda: (hopper, ampere, hopper))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert cuda_driver.visible_names((9, 0)) == ["0", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 6,GPU-a/b")
    assert cuda_driver.visible_names((9, 0)) == ["4", "GPU-a/b"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a/b")
    assert machine.lock_name("cuda") == "cuda-GPU-a-b"
    assert machine.lock_name("cpu") == "cpu"
