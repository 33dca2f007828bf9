"""LocalExecutor: evaluates candidates on this machine through a preloaded, disposable worker process."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from harness.errors import ExecutorError, ProblemError, TargetUnavailable
from harness.problem import check_source
from harness.target import Target, get_target
from harness.worker import environment
from harness.worker.model import Evaluation, EvaluationRequest, ProblemFacts
from harness.worker.text import one_line
from harness.worker_process import START_LIMIT_S, WorkerProcess

DESCRIBE_LIMIT_S = 120.0
CHECK_LIMIT_S = 300.0
COMPILE_LIMIT_S = 300.0
REFERENCE_MEMORY = 32 << 30
# What takes seconds to load and every compilation needs: torch's shape functions load the first two.
COMPILE_MODULES = ("torch._dynamo", "sympy", "torch.utils.cpp_extension", "triton.compiler", "triton.testing")


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
    candidate. Each device (and the CPU) has one process and does one thing at a time, so that two
    measurements never disturb each other; calls from several threads use several devices. `ahead` is the
    target whose process is started at once. Usable as a context manager.
    """

    def __init__(self, cache_dir: Path, require_sandbox: bool = False, ahead: str | None = "cpu") -> None:
        self.cache_dir = Path(cache_dir)
        self.require_sandbox = require_sandbox
        self._lock = threading.Lock()
        self._closed = False
        self._processes: dict[str, list[WorkerProcess]] = {}
        self._free: dict[str, queue.LifoQueue[WorkerProcess]] = {}
        try:
            self.cache_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ExecutorError(f"no place to work: {error}", "free disk space") from error
        if ahead is not None and get_target(ahead).available()[0]:
            with self._process(get_target(ahead)) as process:
                process.start()

    def require(self, target: str) -> None:
        """Raises TargetUnknown, or TargetUnavailable where candidates for the target cannot be run."""
        available, reason = get_target(target).available()
        if not available:
            raise TargetUnavailable(f"{target}: {reason}", "choose a target of `kernelevolve doctor`'s list")

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """The verdict on a candidate: `compiled` at best where the target's device is not here. Raises
        TargetUnknown, TargetUnavailable; everything else is a status.
        """
        target = get_target(request.target)
        present = target.available()[0]
        if not present and not target.compiles()[0]:
            self.require(request.target)
        require_sandbox = self.require_sandbox or request.require_sandbox
        more = {
            "request": asdict(request),
            "require_sandbox": require_sandbox,
            "target": target.plain(),
        }
        try:
            answer = self._ask("evaluate" if present else "compile", more, None, target)
        except ExecutorError as error:
            return Evaluation(
                "harness_error",
                str(error),
                target=request.target,
                baseline=request.baseline,
                log=error.log,
            )
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
        """Ends the processes, also what other threads still wait for, and removes their scratch folders."""
        with self._lock:
            self._closed = True
            processes = [process for pool in self._processes.values() for process in pool]
        for process in processes:
            process.interrupt()
        for process in processes:
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
                one_line(str(answer["failure"])), "run the problem's Model by hand to see the whole traceback"
            )
        return answer

    def _ask(
        self, kind: str, more: dict[str, Any], timeout_s: float | None, target: Target | None = None
    ) -> dict[str, Any]:
        target = target or get_target("cpu")
        message = {"cache": str(self.cache_dir.absolute()), "memory": REFERENCE_MEMORY, **more}
        with self._process(target, absent=kind == "compile") as process:
            if self._closed:
                raise ExecutorError("the executor is closed")
            return process.ask(kind, target.device, message, timeout_s)

    @contextlib.contextmanager
    def _process(self, target: Target, *, absent: bool = False) -> Iterator[WorkerProcess]:
        """A process that has the target's device to itself meanwhile, or one that compiles for `absent` ones;
        waits for one to be free.
        """
        name = "compile" if absent else target.name if target.device != "cpu" else "cpu"
        with self._lock:
            if name not in self._processes:
                self._processes[name] = _absent() if absent else _present(target)
                self._free[name] = queue.LifoQueue()  # the first to be taken is one that runs already
                for process in reversed(self._processes[name]):
                    self._free[name].put(process)
        process = self._free[name].get()
        try:
            yield process
        finally:
            self._free[name].put(process)


def _present(target: Target) -> list[WorkerProcess]:
    interpret = target.device == "cpu"
    return [WorkerProcess(interpret=interpret, visible=visible) for visible in target.find_devices()]


def _absent() -> list[WorkerProcess]:
    """One process that compiles; devices of another kind that are here are hidden from it."""
    return [WorkerProcess(interpret=False, visible="", preload=COMPILE_MODULES)]
