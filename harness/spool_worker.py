"""Works on the jobs of a spool folder, one after another; any number of workers may share one."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.errors import ExecutorError, HarnessError, TargetUnknown
from harness.executor import Executor
from harness.jobs import JobError, request_from_json
from harness.spool import SIZE_LIMIT, SLOWEST_POLL_S, VERSION, Job, Spool, failure, place
from harness.target import get_target

BEATS_PER_LEASE = 10
# What is no JSON may still be on its way here, by a copy that is not atomic.
SETTLE_S = 5.0
Report = Callable[[str, dict[str, Any], float], None]


class SpoolWorker:
    """`report` is called with a job's name, its answer and its seconds."""

    def __init__(self, spool: Spool, executor: Executor, report: Report = lambda *_: None) -> None:
        self.spool, self.executor, self.report = spool, executor, report
        host = re.sub(r"[^A-Za-z0-9_-]", "-", platform.node()) or "host"
        self.name = f"{host[:40]}-{os.getpid()}-{secrets.token_hex(3)}"
        self._unsettled: dict[Path, tuple[int, float]] = {}

    def run(self, idle_exit_s: float | None = None) -> int:
        """Works until interrupted, or until there was nothing to do for `idle_exit_s` seconds; returns how
        many jobs it answered. SIGTERM, as from a batch queue, is an interruption; a job in work goes back.
        """
        done, idle_since = 0, time.monotonic()
        with _terminable(), self._heartbeat():
            while True:
                self.spool.recover()
                if self._work_on_one():
                    done, idle_since = done + 1, time.monotonic()
                    continue
                idle_s = time.monotonic() - idle_since
                if idle_exit_s is not None and idle_s >= idle_exit_s and not self._unsettled:
                    return done
                time.sleep(min(SLOWEST_POLL_S, self.spool.lease_s / BEATS_PER_LEASE))

    def _work_on_one(self) -> bool:
        jobs = self.spool.waiting()
        there = {job.path for job in jobs}
        self._unsettled = {path: seen for path, seen in self._unsettled.items() if path in there}
        for waiting in jobs:
            content = self._read(waiting)
            if content is None:
                continue
            job = self.spool.claim(waiting, self.name)
            if job is None:
                continue
            start = time.perf_counter()
            try:
                answer = self._answer(content)
            except BaseException:
                self.spool.release(job, waiting.attempt)
                raise
            wall_s = time.perf_counter() - start
            self.spool.finish(job, {"worker": self.name, "wall_s": round(wall_s, 3), **answer})
            self.report(job.name, answer, wall_s)
            return True
        return False

    def _read(self, job: Job) -> Any:
        """What the job asks; None where it is not for this worker, or not whole yet."""
        try:
            found = job.path.stat()
            if found.st_size > SIZE_LIMIT:
                return JobError(f"the job is larger than {SIZE_LIMIT >> 20} MiB")
            content = json.loads(job.path.read_bytes())
        except OSError:
            return None
        except (ValueError, RecursionError):
            known = self._unsettled.get(job.path)
            if known is None or known[0] != found.st_size:
                self._unsettled[job.path] = found.st_size, time.monotonic()
                return None
            return JobError("the job is not JSON") if time.monotonic() - known[1] > SETTLE_S else None
        self._unsettled.pop(job.path, None)
        return content if self._suits(content) else None

    @staticmethod
    def _suits(content: Any) -> bool:
        """Whether this machine has the job's target. What is malformed suits everybody: it is answered so."""
        request = content.get("request") if isinstance(content, dict) else None
        target = request.get("target", "cpu") if isinstance(request, dict) else "cpu"
        try:
            return get_target(str(target)).available()[0]
        except TargetUnknown:  # another worker may know it
            return False

    def _answer(self, content: Any) -> dict[str, Any]:
        try:
            return self._result(content)
        except HarnessError as error:
            return failure(error)
        except Exception as error:
            text = f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:300]}"
            return failure(ExecutorError(text, "please report this"))

    def _result(self, content: Any) -> dict[str, Any]:
        if isinstance(content, JobError):
            raise content
        if not isinstance(content, dict):
            raise JobError("a job is a JSON object")
        if content.get("version", VERSION) != VERSION:
            raise JobError(f"the job is of version {content['version']}, this worker of version {VERSION}")
        kind = content.get("kind")
        if kind == "evaluate":
            return {"evaluation": self.executor.evaluate(request_from_json(content.get("request"))).to_json()}
        if kind not in ("describe", "check", "compiler_source"):
            raise JobError(f"unknown kind of job: {str(kind)[:40]!r}")
        source, name = content.get("problem"), content.get("name", "problem")
        if not isinstance(source, str) or not isinstance(name, str):
            raise JobError("a job other than `evaluate` has the texts problem and name")
        if kind == "describe":
            return {"facts": self.executor.describe(source, name).to_json()}
        if kind == "check":
            return {"findings": self.executor.check(source, name)}
        return {"candidate": self.executor.compiler_source(source)}

    @contextlib.contextmanager
    def _heartbeat(self) -> Iterator[None]:
        path = self.spool.folder / "workers" / f"{self.name}.json"
        about = {"version": VERSION, "host": platform.node(), "pid": os.getpid()}
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(self.spool.lease_s / BEATS_PER_LEASE):
                try:
                    os.utime(path)
                except OSError:  # somebody tidied up, or the file server is away for a moment
                    with contextlib.suppress(OSError):
                        place(path, about)

        place(path, about)
        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            path.unlink(missing_ok=True)


def summary(answer: dict[str, Any]) -> str:
    """An answer in a few words."""
    if "error" in answer:
        return f"error: {answer['error']['message']}"
    if "evaluation" in answer:
        return f"{answer['evaluation']['status']}: {answer['evaluation']['reason']}"
    return ", ".join(answer)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
