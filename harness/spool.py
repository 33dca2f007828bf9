"""A folder as a queue: job files in, result files out, over anything that can share or copy files.

Layout (version 1; every file is JSON and complete as soon as it has its name):

    spool.json                        version, and the lease in seconds that everybody keeps to
    jobs/NAME.json, NAME.K.json       a waiting job, of which K attempts failed with their workers
    claimed/NAME.K.WORKER.json        the same file while WORKER works on it (attempt K)
    workers/WORKER.json               who that is; rewritten dates are its heartbeat
    results/NAME.json                 the answer, never overwritten

A job is taken by renaming it, which only one of several workers can do. Clocks are never compared between
machines: a worker is dead when its heartbeat has not changed for a lease by the observer's own clock. A job
carries source texts and no code objects, but problems run outside any jail: let only people write to the
folder whom you would let log in.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness import errors
from harness.errors import ExecutorError, HarnessError
from harness.jobs import plain
from harness.problem import check_source
from harness.target import get_target
from harness.worker.model import Evaluation, EvaluationRequest, ProblemFacts

VERSION = 1
LEASE_S = 60.0
ATTEMPTS = 3
SIZE_LIMIT = 32 << 20
FASTEST_POLL_S, SLOWEST_POLL_S = 0.05, 1.0
_WAITING = re.compile(r"(?P<name>[A-Za-z0-9_-]+)(\.(?P<attempt>\d{1,4}))?\.json")
_CLAIMED = re.compile(r"(?P<name>[A-Za-z0-9_-]+)\.(?P<attempt>\d{1,4})\.(?P<worker>[A-Za-z0-9_-]+)\.json")


@dataclass(frozen=True)
class Job:
    """A job file as it lies in the folder: `attempt` counts the workers that have taken it."""

    name: str
    attempt: int
    path: Path
    worker: str = ""


class Spool:
    """The folder, and what both sides do with it."""

    def __init__(self, folder: Path, lease_s: float = LEASE_S) -> None:
        """Opens the folder, creating what is missing; an existing one keeps its own lease. Raises
        ExecutorError.
        """
        self.folder = Path(folder).absolute()
        try:
            for name in ("jobs", "claimed", "workers", "results"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            place(self.folder / "spool.json", {"version": VERSION, "lease_s": lease_s})
            about = json.loads((self.folder / "spool.json").read_text(encoding="utf-8"))
            self.version, self.lease_s = int(about["version"]), float(about["lease_s"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ExecutorError(
                f"{folder} cannot be used as a spool: {error}", "name another folder"
            ) from error
        if self.version != VERSION:
            raise ExecutorError(
                f"{folder} is a spool of version {self.version}, this is version {VERSION}",
                "use the same version of KernelEvolve on both sides",
            )
        self._seen: dict[str, tuple[int, float]] = {}  # worker → its heartbeat, and when that was new to us

    def submit(self, job: dict[str, Any]) -> str:
        """Adds a job and returns its name: what it contains, and a part that is unique."""
        digest = hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()[:16]
        name = f"{digest}-{secrets.token_hex(4)}"
        place(self.folder / "jobs" / f"{name}.json", {"version": VERSION, **job})
        return name

    def withdraw(self, name: str) -> None:
        """Removes a job that nobody has taken yet."""
        for job in self.waiting():
            if job.name == name:
                job.path.unlink(missing_ok=True)

    def waiting(self) -> list[Job]:
        """Jobs to take, the oldest first."""
        return sorted(self._list("jobs", _WAITING), key=lambda job: (_date(job.path), job.name))

    def claimed(self) -> list[Job]:
        return list(self._list("claimed", _CLAIMED))

    def claim(self, job: Job, worker: str) -> Job | None:
        """Takes a job; None if another worker was faster."""
        attempt = job.attempt + 1
        path = self.folder / "claimed" / f"{job.name}.{attempt}.{worker}.json"
        with contextlib.suppress(OSError):  # over NFS, a rename may work and report that it did not
            job.path.rename(path)
        if not path.exists():
            return None
        if self.result(job.name) is not None:  # by a worker that was taken for dead
            path.unlink(missing_ok=True)
            return None
        return Job(job.name, attempt, path, worker)

    def release(self, job: Job, attempt: int) -> None:
        """Puts a claimed job back. A worker that was asked to stop takes no `attempt` from it."""
        with contextlib.suppress(OSError):  # somebody else did it
            job.path.rename(self.folder / "jobs" / f"{job.name}.{attempt}.json")

    def finish(self, job: Job, result: dict[str, Any]) -> bool:
        """Stores the answer unless there is one already, then forgets the job."""
        stored = place(self.folder / "results" / f"{job.name}.json", {"version": VERSION, **result})
        job.path.unlink(missing_ok=True)
        return stored

    def result(self, name: str) -> dict[str, Any] | None:
        """The answer to a job; None as long as there is none, also where it is still being copied."""
        try:
            answer = json.loads((self.folder / "results" / f"{name}.json").read_bytes())
        except (OSError, ValueError):
            return None
        return answer if isinstance(answer, dict) else None

    def recover(self) -> None:
        """Puts back what dead workers held; to be called now and then by whoever waits for something.

        A job whose workers died ATTEMPTS times is answered with an error: it may be what kills them.
        """
        now = time.monotonic()
        for job in self.claimed():
            beat = _date(self.folder / "workers" / f"{job.worker}.json")
            known = self._seen.get(job.worker)
            if known is None or known[0] != beat:
                self._seen[job.worker] = beat, now
            elif now - known[1] > self.lease_s:
                if job.attempt >= ATTEMPTS:
                    text = f"{job.attempt} workers died while they worked on it"
                    self.finish(
                        job, failure(ExecutorError(text, "try it on its own: it may be what kills them"))
                    )
                else:
                    self.release(job, job.attempt)

    def _list(self, folder: str, pattern: re.Pattern[str]) -> Iterator[Job]:
        for path in (self.folder / folder).iterdir():
            match = pattern.fullmatch(path.name)
            if match:
                parts = match.groupdict()
                yield Job(parts["name"], int(parts["attempt"] or 0), path, parts.get("worker", ""))


class SpoolExecutor:
    """Has candidates judged by whichever worker (`kernelevolve worker --spool`) takes the job.

    Usable from several threads at once; each call waits for its answer, for at most `wait_s` seconds where
    that is given. The same interface as LocalExecutor.
    """

    def __init__(self, folder: Path, require_sandbox: bool = False, wait_s: float | None = None) -> None:
        self.spool = Spool(folder)
        self.require_sandbox = require_sandbox
        self.wait_s = wait_s

    def require(self, target: str) -> None:
        """Raises TargetUnknown. Whether a worker has the device shows when one takes the job."""
        get_target(target)

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """The verdict on a candidate. Raises TargetUnknown; everything else is a status."""
        self.require(request.target)
        job = {
            "kind": "evaluate",
            "request": asdict(request) | {"require_sandbox": request.require_sandbox or self.require_sandbox},
        }
        try:
            return Evaluation.from_json(self._ask(job, "evaluation"))
        except HarnessError as error:
            return Evaluation("harness_error", str(error), target=request.target, baseline=request.baseline)

    def describe(self, problem_source: str, name: str = "problem") -> ProblemFacts:
        """Raises ProblemError for an invalid problem, ExecutorError."""
        return ProblemFacts.from_json(self._look("describe", "facts", problem_source, name))

    def check(self, problem_source: str, name: str = "problem") -> list[dict[str, str]]:
        """Raises ProblemError for an invalid problem, ExecutorError."""
        return list(self._look("check", "findings", problem_source, name))

    def compiler_source(self, problem_source: str) -> str:
        """Raises ProblemError where there is none, ExecutorError."""
        return str(self._look("compiler_source", "candidate", problem_source, "problem"))

    def close(self) -> None:
        """Nothing is held open; workers go on."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _look(self, kind: str, key: str, source: str, name: str) -> Any:
        check_source(source)
        return self._ask({"kind": kind, "problem": source, "name": name}, key)

    def _ask(self, job: dict[str, Any], key: str) -> Any:
        try:
            name = self.spool.submit(job)
            answer = self._wait(name)
        except OSError as error:
            raise ExecutorError(f"the spool cannot be used: {error}", "check the folder") from error
        if "error" in answer:
            raise _raised(answer["error"])
        if key not in answer:
            raise ExecutorError("a worker's answer lacks its result", "use the same version on both sides")
        return answer[key]

    def _wait(self, name: str) -> dict[str, Any]:
        start, pause = time.monotonic(), FASTEST_POLL_S
        try:
            while (answer := self.spool.result(name)) is None:
                if self.wait_s is not None and time.monotonic() - start > self.wait_s:
                    raise ExecutorError(
                        f"no worker answered within {self.wait_s:g} s",
                        f"start one: kernelevolve worker --spool {self.spool.folder}",
                    )
                self.spool.recover()
                time.sleep(pause)
                pause = min(1.5 * pause, SLOWEST_POLL_S)
        except BaseException:
            self.spool.withdraw(name)
            raise
        return answer


def place(path: Path, document: dict[str, Any]) -> bool:
    """Writes a file that appears at once and whole, and survives a crash; False if it existed before."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    data = json.dumps(plain(document), separators=(",", ":"), allow_nan=False).encode()
    try:
        with scratch.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        try:
            path.hardlink_to(scratch)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            if path.exists():
                return False
            scratch.rename(path)
    finally:
        scratch.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True


def failure(error: HarnessError) -> dict[str, Any]:
    """An error as a result."""
    return {"error": {"type": type(error).__name__, "message": str(error), "hint": error.hint}}


def _raised(error: Any) -> HarnessError:
    """The error that a worker met, as one of this package's own kinds."""
    details = error if isinstance(error, dict) else {"message": str(error)}
    kind = getattr(errors, str(details.get("type")), ExecutorError)
    known = isinstance(kind, type) and issubclass(kind, HarnessError)
    return (kind if known else ExecutorError)(str(details.get("message")), str(details.get("hint", "")))


def _date(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
