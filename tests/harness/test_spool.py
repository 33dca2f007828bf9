"""A folder as a queue: several workers, dead workers, other clocks, and files that are no jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import Evaluation, EvaluationRequest, SpoolExecutor
from harness.errors import ExecutorError, ProblemError
from harness.spool import ATTEMPTS, Spool, place
from harness.spool_worker import SpoolWorker

# A worker process whose executor follows the candidate's text instead of judging it.
WORKER = """
import os, signal, sys, time
from pathlib import Path
from harness import Evaluation
from harness.spool import Spool
from harness.spool_worker import SpoolWorker

class Scripted:
    def evaluate(self, request):
        folder = Path(sys.argv[1])
        with (folder / "log").open("a") as log:
            log.write(request.candidate + "\\n")
        if request.candidate == "deadly" or (request.candidate == "deadly once" and sys.argv[2] == "victim"):
            os.kill(os.getpid(), signal.SIGKILL)
        if request.candidate == "slow":
            time.sleep(60)
        return Evaluation("correct", request.candidate)

idle_exit_s = 5.0 if sys.argv[2] == "victim" else float(sys.argv[2])
SpoolWorker(Spool(Path(sys.argv[1]) / "spool"), Scripted()).run(idle_exit_s)
"""


class Box:
    """A folder with a spool, and workers on it."""

    def __init__(self, folder: Path, repository: Path) -> None:
        self.folder, self.repository = folder, repository
        self.spool = Spool(folder / "spool", lease_s=0.5)
        self.workers: list[subprocess.Popen[bytes]] = []

    def submit(self, candidate: str, **more: Any) -> str:
        request = {"problem": "p", "candidate": candidate, **more}
        return self.spool.submit({"kind": "evaluate", "request": request})

    def worker(self, how: str = "0") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", WORKER, str(self.folder), how]
        self.workers.append(subprocess.Popen(command, cwd=self.repository))
        return self.workers[-1]

    def log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def until_logged(self, line: str) -> None:
        deadline = time.monotonic() + 20
        while line not in self.log():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def files(self) -> list[str]:
        """What lies in the queue, without results."""
        found = [p for name in ("jobs", "claimed", "workers") for p in (self.spool.folder / name).iterdir()]
        return sorted(p.name for p in found)


@pytest.fixture
def box(tmp_path: Path, repository: Path) -> Iterator[Box]:
    made = Box(tmp_path, repository)
    yield made
    for worker in made.workers:
        worker.kill()
        worker.wait()


def answer(spool: Spool, name: str) -> dict[str, Any]:
    found = spool.result(name)
    assert found is not None
    return found


class Echo:
    """An executor for workers inside the test."""

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        return Evaluation("correct", request.candidate)


def work(spool: Spool) -> int:
    return SpoolWorker(spool, Echo()).run(0.0)  # type: ignore[arg-type]


def test_a_real_worker_judges_what_lies_in_the_folder(
    tmp_path: Path, repository: Path, norm_problem: str, norm_candidate: str
) -> None:
    executor = SpoolExecutor(tmp_path, wait_s=60)
    request = EvaluationRequest(norm_problem, norm_candidate, timing_budget_s=0)
    verdicts: list[Evaluation] = []
    errors: list[BaseException] = []

    def describe() -> None:
        try:
            executor.describe(norm_problem.replace("torch.rand", "torch.nowhere"))
        except ProblemError as error:
            errors.append(error)

    threads = [
        threading.Thread(target=lambda: verdicts.append(executor.evaluate(request))),
        threading.Thread(target=describe),
    ]
    for thread in threads:
        thread.start()
    while len(executor.spool.waiting()) < 2:
        time.sleep(0.02)
    command = [sys.executable, "-m", "harness", "worker", "--spool", str(tmp_path), "--once", "--json"]
    command += ["--cache", str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, cwd=repository)
    for thread in threads:
        thread.join(10)
    assert json.loads(done.stdout) == {"schema_version": 1, "jobs": 2}, done.stderr
    assert verdicts[0].status == "correct", verdicts[0].reason
    assert verdicts[0].correctness is not None
    assert "nowhere" in str(errors[0])


def test_each_job_is_done_by_one_of_several_workers(box: Box) -> None:
    names = [box.submit(f"candidate {i}") for i in range(24)]
    for worker in [box.worker() for _ in range(3)]:
        assert worker.wait(30) == 0
    assert sorted(box.log()) == sorted(f"candidate {i}" for i in range(24))
    assert all(answer(box.spool, name)["evaluation"]["status"] == "correct" for name in names)
    assert box.files() == []


def test_a_killed_workers_job_goes_to_another(box: Box) -> None:
    name = box.submit("deadly once")
    assert box.worker("victim").wait(20) == -signal.SIGKILL
    assert [job.name for job in box.spool.claimed()] == [name]
    assert box.worker("2").wait(30) == 0
    assert answer(box.spool, name)["evaluation"]["reason"] == "deadly once"
    assert box.log() == ["deadly once"] * 2


def test_a_job_that_kills_its_workers_is_given_up(box: Box) -> None:
    name = box.submit("deadly")
    for _ in range(ATTEMPTS):
        assert box.worker("5").wait(20) == -signal.SIGKILL
    assert work_until(box.spool, name)["error"]["message"] == "3 workers died while they worked on it"
    assert box.spool.waiting() == box.spool.claimed() == []


def work_until(spool: Spool, name: str) -> dict[str, Any]:
    deadline = time.monotonic() + 10
    while (found := spool.result(name)) is None:
        assert time.monotonic() < deadline
        spool.recover()
        time.sleep(0.05)
    return found


def test_a_terminated_worker_puts_its_job_back(box: Box) -> None:
    name = box.submit("slow")
    worker = box.worker()
    box.until_logged("slow")
    worker.terminate()
    worker.wait(20)
    assert box.files() == [f"{name}.0.json"]


@pytest.mark.parametrize("skew_s", [-86400, 86400])
def test_clocks_of_other_machines_do_not_matter(tmp_path: Path, skew_s: int) -> None:
    spool = Spool(tmp_path, lease_s=0.3)
    name = spool.submit({"kind": "evaluate"})
    heart = tmp_path / "workers" / "far-away.json"
    place(heart, {})
    spool.claim(spool.waiting()[0], "far-away")
    start = time.monotonic()
    while time.monotonic() - start < 0.6:  # alive, by a clock that is a day off
        now = time.time() + skew_s
        os.utime(heart, (now, now))
        spool.recover()
        assert spool.waiting() == []
        time.sleep(0.05)
    deadline = time.monotonic() + 5
    while not spool.waiting():  # silent from now on
        spool.recover()
        time.sleep(0.05)
        assert time.monotonic() < deadline
    assert [(job.name, job.attempt) for job in spool.waiting()] == [(name, 1)]


def test_an_answer_is_never_overwritten(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    name = spool.submit({"kind": "evaluate"})
    late = spool.claim(spool.waiting()[0], "late")
    assert late is not None
    spool.release(late, 1)  # it was taken for dead
    quick = spool.claim(spool.waiting()[0], "quick")
    assert quick is not None
    assert spool.finish(quick, {"evaluation": 1})
    assert not spool.finish(late, {"evaluation": 2})
    assert answer(spool, name)["evaluation"] == 1
    assert not [p for p in (tmp_path / "results").iterdir() if p.name.startswith(".")]


def test_what_is_no_job_is_answered_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.spool_worker.SETTLE_S", 0.05)
    monkeypatch.setattr("harness.spool_worker.SIZE_LIMIT", 1 << 12)
    spool = Spool(tmp_path, lease_s=0.5)
    texts = {
        "broken": "{",
        "list": "[]",
        "kind": '{"kind": "format the disk"}',
        "version": '{"version": 2, "kind": "evaluate"}',
        "request": '{"kind": "evaluate", "request": {"problem": "p"}}',
        "field": '{"kind": "evaluate", "request": {"problem": "p", "candidate": "c", "colour": 1}}',
        "text": '{"kind": "describe", "problem": 7}',
        "long": '"' + "x" * 5000 + '"',
        "deep": "[" * 3000,
        "good": '{"kind": "evaluate", "request": {"problem": "p", "candidate": "c"}}',
    }
    for name, text in texts.items():
        (tmp_path / "jobs" / f"{name}.json").write_text(text)
    (tmp_path / "jobs" / "notes.txt").write_text("left alone")
    assert work(spool) == len(texts)
    messages = {n: answer(spool, n).get("error", {}).get("message", "") for n in texts}
    assert messages == {
        "broken": "the job is not JSON",
        "list": "a job is a JSON object",
        "kind": "unknown kind of job: 'format the disk'",
        "version": "the job is of version 2, this worker of version 1",
        "request": "missing fields: candidate",
        "field": "unknown fields: colour",
        "text": "a job other than `evaluate` has the texts problem and name",
        "long": "the job is larger than 0 MiB",
        "deep": "the job is not JSON",
        "good": "",
    }
    assert [p.name for p in (tmp_path / "jobs").iterdir()] == ["notes.txt"]


def test_a_job_that_is_still_being_copied_is_waited_for(tmp_path: Path) -> None:
    spool = Spool(tmp_path, lease_s=0.5)
    text = '{"kind": "evaluate", "request": {"problem": "p", "candidate": "c"}}'
    path = tmp_path / "jobs" / "copied.json"
    path.write_text(text[:20])
    timer = threading.Timer(0.3, path.write_text, [text])
    timer.start()
    assert work(spool) == 1
    assert answer(spool, "copied")["evaluation"]["reason"] == "c"


def test_a_worker_leaves_jobs_for_other_machines(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    request = {"problem": "p", "candidate": "c", "target": "abacus:beads"}
    name = spool.submit({"kind": "evaluate", "request": request})
    assert work(spool) == 0
    assert [job.name for job in spool.waiting()] == [name]


def test_nobody_answers(tmp_path: Path, norm_problem: str) -> None:
    executor = SpoolExecutor(tmp_path, wait_s=0.1)
    evaluation = executor.evaluate(EvaluationRequest(norm_problem, "c"))
    assert (evaluation.status, evaluation.reason) == ("harness_error", "no worker answered within 0.1 s")
    with pytest.raises(ExecutorError, match="no worker"):
        executor.check(norm_problem)
    assert executor.spool.waiting() == []


def test_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spool.json").write_text('{"version": 9, "lease_s": 60}')
    with pytest.raises(ExecutorError, match="version 9"):
        Spool(tmp_path)
