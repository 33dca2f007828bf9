"""LocalExecutor: evaluates candidates on this machine through a preloaded, disposable worker process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.errors import ExecutorError, ProblemError, TargetUnavailable
from harness.problem import check_source
from harness.target import get_target
from harness.worker import environment
from harness.worker.model import Evaluation, EvaluationRequest, ProblemFacts
from harness.worker.wire import LARGE_FRAME, Channel, WireError, channel_pair

START_LIMIT_S = 120.0
DESCRIBE_LIMIT_S = 120.0
COMPILE_LIMIT_S = 300.0
REFERENCE_MEMORY = 32 << 30
# How long an OpenMP thread busy-waits at a barrier before it sleeps. The default (milliseconds) makes two
# threads that share a CPU wait for the scheduler's tick, ten times the run time of a small kernel, on one
# side or the other.
SPIN_COUNT = "1000"
# Nothing else of the user's environment reaches a worker: a candidate could read it from /proc/self/environ.
_KEPT_VARIABLES = (
    "PATH",
    "LANG",
    "LC_ALL",
    "CXX",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_HOME",
    "HOME",
)


class LocalExecutor:
    """Owns a zygote process that has torch loaded; each request gets a judge of its own, forked from it.

    `cache_dir` holds what outlives an evaluation: torch.compile's cache for references, nothing of a
    candidate. One request runs at a time, so that two measurements never disturb each other. Usable as a
    context manager.
    """

    def __init__(self, cache_dir: Path, require_sandbox: bool = False) -> None:
        self.cache_dir = Path(cache_dir)
        self.require_sandbox = require_sandbox
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: Channel | None = None
        self._awaiting_ready = False
        self._scratch: Path | None = None
        self._start()

    def require(self, target: str) -> None:
        """Raises TargetUnknown, or TargetUnavailable where candidates for the target cannot be run."""
        available, reason = get_target(target).available()
        if not available:
            raise TargetUnavailable(f"{target}: {reason}", "choose a target of `kernelevolve doctor`'s list")

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """The verdict on a candidate. Raises TargetUnknown, TargetUnavailable; everything else is a
        status.
        """
        self.require(request.target)
        more = {"request": asdict(request), "require_sandbox": self.require_sandbox}
        try:
            answer = self._ask("evaluate", more, None)
        except ExecutorError as error:
            return Evaluation("harness_error", str(error), target=request.target, baseline=request.baseline)
        return Evaluation.from_json(answer["evaluation"])

    def describe(self, problem_source: str, name: str = "problem") -> ProblemFacts:
        """Runs the reference once and traces it to ATen operators; raises ProblemError for an invalid
        problem.
        """
        answer = self._look("describe", problem_source, name, DESCRIBE_LIMIT_S, "describing the problem")
        return ProblemFacts.from_json(answer["facts"])

    def compiler_source(self, problem_source: str) -> str:
        """TorchInductor's code for the problem as a complete candidate file; raises ProblemError where it
        has none.
        """
        what = "torch.compile of the reference"
        return str(
            self._look("compiler_source", problem_source, "problem", COMPILE_LIMIT_S, what)["candidate"]
        )

    def close(self) -> None:
        """Ends the worker and removes its scratch folder."""
        with self._lock:
            self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _look(self, kind: str, source: str, name: str, limit_s: float, what: str) -> dict[str, Any]:
        check_source(source)
        threads = environment.usable_cpus()
        more = {"problem": source, "name": name, "limit_s": limit_s, "what": what, "threads": threads}
        answer = self._ask(kind, more, limit_s + START_LIMIT_S)
        if "failure" in answer:
            raise ProblemError(
                str(answer["failure"]), "run the problem's Model by hand to see the whole traceback"
            )
        return answer

    def _ask(self, kind: str, more: dict[str, Any], timeout_s: float | None) -> dict[str, Any]:
        with self._lock:
            control = self._running()
            assert self._scratch is not None
            folder = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=self._scratch))
            ours, theirs = channel_pair()
            ours.limit = LARGE_FRAME
            try:
                control.send({"kind": kind}, (theirs.sock.fileno(),))
                theirs.close()
                cache = str(self.cache_dir.absolute())
                ours.send({"scratch": str(folder), "cache": cache, "memory": REFERENCE_MEMORY, **more})
                return ours.receive(timeout_s)
            except WireError as error:
                raise ExecutorError(
                    f"the judge died: {error or 'no answer'}", "please report this"
                ) from error
            finally:
                ours.close()
                shutil.rmtree(folder, ignore_errors=True)

    def _start(self) -> None:
        try:
            self.cache_dir.mkdir(parents=True, exist_ok=True)
            self._scratch = Path(tempfile.mkdtemp(prefix="kernelevolve-"))
        except OSError as error:
            raise ExecutorError(f"no place to work: {error}", "free disk space or set TMPDIR") from error
        ours, theirs = channel_pair()
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        package_root = str(Path(__file__).resolve().parents[1])
        fd = theirs.sock.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.worker.zygote", str(fd)],
            env={
                **kept,
                "PYTHONPATH": package_root,
                "OPENBLAS_NUM_THREADS": "1",
                "GOMP_SPINCOUNT": SPIN_COUNT,
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            cwd=self._scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(fd,),
            start_new_session=True,  # Ctrl-C reaches the executor alone, which then closes the channels
        )
        theirs.close()
        self._control, self._awaiting_ready = ours, True

    def _running(self) -> Channel:
        """The zygote's channel, restarted if it died and waited for if it is still loading torch."""
        if self._process is None or self._process.poll() is not None:
            self._stop()
            self._start()
        assert self._control is not None
        if self._awaiting_ready:
            try:
                self._control.receive(START_LIMIT_S)
            except WireError as error:
                self._stop()
                raise ExecutorError(
                    "the worker process did not start", "check `kernelevolve doctor`"
                ) from error
            self._awaiting_ready = False
        return self._control

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(2.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None
