"""LocalExecutor: evaluates candidates on this machine through a preloaded, disposable worker process."""

from __future__ import annotations

import shutil
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from harness.errors import ExecutorError, ProblemError, TargetUnavailable
from harness.problem import check_source
from harness.target import get_target
from harness.worker import environment
from harness.worker.model import Evaluation, EvaluationRequest, ProblemFacts
from harness.worker.wire import LARGE_FRAME, WireError, channel_pair
from harness.worker_process import START_LIMIT_S, WorkerProcess

DESCRIBE_LIMIT_S = 120.0
CHECK_LIMIT_S = 300.0
COMPILE_LIMIT_S = 300.0
REFERENCE_MEMORY = 32 << 30


class Executor(Protocol):
    """Where candidates are judged: on this machine, by the workers of a folder, or elsewhere."""

    def require(self, target: str) -> None:
        """Raises TargetUnknown, or TargetUnavailable where it is known that nothing can run there."""

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """The verdict on a candidate. Raises TargetUnknown, TargetUnavailable; everything else is a
        status.
        """

    def describe(self, problem_source: str, name: str = "problem") -> ProblemFacts:
        """What one look at the reference tells; raises ProblemError, ExecutorError."""

    def check(self, problem_source: str, name: str = "problem") -> list[dict[str, str]]:
        """What makes the problem weak; raises ProblemError, ExecutorError."""

    def compiler_source(self, problem_source: str) -> str:
        """TorchInductor's code as a candidate; raises ProblemError, ExecutorError."""

    def close(self) -> None:
        """Ends what belongs to this executor."""


class LocalExecutor:
    """Owns zygote processes that have torch loaded; each request gets a judge of its own, forked from one.

    `cache_dir` holds what outlives an evaluation: torch.compile's cache for references, nothing of a
    candidate. One request runs at a time, so that two measurements never disturb each other. Usable as a
    context manager.
    """

    def __init__(self, cache_dir: Path, require_sandbox: bool = False) -> None:
        self.cache_dir = Path(cache_dir)
        self.require_sandbox = require_sandbox
        self._lock = threading.Lock()
        try:
            self.cache_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ExecutorError(f"no place to work: {error}", "free disk space") from error
        self._processes = {"cpu": WorkerProcess(interpret=True)}
        self._processes["cpu"].start()

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
        device = get_target(request.target).device
        require_sandbox = self.require_sandbox or request.require_sandbox
        more = {"request": asdict(request), "require_sandbox": require_sandbox}
        try:
            answer = self._ask("evaluate", more, None, device)
        except ExecutorError as error:
            return Evaluation("harness_error", str(error), target=request.target, baseline=request.baseline)
        return Evaluation.from_json(answer["evaluation"])

    def describe(self, problem_source: str, name: str = "problem") -> ProblemFacts:
        """Runs the reference once and traces it to ATen operators; raises ProblemError for an invalid
        problem.
        """
        answer = self._look("describe", problem_source, name, DESCRIBE_LIMIT_S, "describing the problem")
        return ProblemFacts.from_json(answer["facts"])

    def check(self, problem_source: str, name: str = "problem") -> list[dict[str, str]]:
        """What makes a problem weak: findings `{rule, severity, detail}`, none for a sound one.

        `warning`: the judge cannot tell some wrong candidate from a right one; `info`: the problem's own
        inputs could not. Raises ProblemError for an invalid problem.
        """
        answer = self._look("check", problem_source, name, CHECK_LIMIT_S, "checking the problem")
        return list(answer["findings"])

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
            for process in self._processes.values():
                process.stop()

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

    def _ask(
        self, kind: str, more: dict[str, Any], timeout_s: float | None, device: str = "cpu"
    ) -> dict[str, Any]:
        with self._lock:
            if device not in self._processes:
                self._processes[device] = WorkerProcess(interpret=False)
            control, scratch = self._processes[device].running()
            folder = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=scratch))
            ours, theirs = channel_pair()
            ours.limit = LARGE_FRAME
            try:
                control.send({"kind": kind, "device": device}, (theirs.sock.fileno(),))
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
