"""Many evaluations in one process: a file of jobs in, a line per verdict out as soon as it is reached."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, ProblemError, TargetUnavailable, TargetUnknown
from harness.executor import Executor
from harness.jobs import JobError, plain, request_from_json
from harness.problem import load_problem
from harness.worker.model import Evaluation

Progress = Callable[[str, float, Evaluation], None]


def run_batch(
    executor: Executor, jobs: Path, out: Path, progress: Progress = lambda *_: None
) -> dict[str, int]:
    """Judges the jobs of a file one after another and returns how often each status was reached.

    Each line of `jobs` is `{"id", "problem": path, "candidate": path}` with any other field of
    EvaluationRequest; paths are relative to the current folder. Each line of `out` is `{"id", "wall_s",
    "evaluation"}`, on disk before the next job starts. Jobs whose id has a line there already are left out,
    so that a batch that was killed is taken up again. What is wrong with one job is its verdict, not the end
    of the batch. Raises JobError for a line that is no job, OSError.
    """
    lines = list(_read_jobs(jobs))
    done = _finished(out)
    counts: dict[str, int] = {}
    with out.open("ab") as stream:
        for name, job in lines:
            if name in done:
                continue
            start = time.perf_counter()
            evaluation = _evaluate(executor, job)
            wall_s = round(time.perf_counter() - start, 3)
            line = {"id": name, "wall_s": wall_s, "evaluation": plain(evaluation.to_json())}
            stream.write(json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
            counts[evaluation.status] = counts.get(evaluation.status, 0) + 1
            progress(name, wall_s, evaluation)
    return counts


def _evaluate(executor: Executor, job: dict[str, Any]) -> Evaluation:
    target = str(job.get("target", "cpu"))
    try:
        candidate = Path(job["candidate"]).read_text(encoding="utf-8")
        problem = load_problem(job["problem"])
        request = request_from_json(
            {"problem_name": problem.name, **job, "problem": problem.source, "candidate": candidate}
        )
        return executor.evaluate(request)
    except ProblemError as error:
        return Evaluation("invalid_problem", str(error), target=target)
    except (TargetUnavailable, TargetUnknown, HarnessError, OSError, UnicodeDecodeError) as error:
        return Evaluation("harness_error", str(error), target=target)


def _read_jobs(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    seen: set[str] = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            job = json.loads(line)
        except ValueError as error:
            raise JobError(f"{path}, line {number}: not JSON") from error
        paths = [job.get(key) for key in ("problem", "candidate")] if isinstance(job, dict) else [None]
        if not all(isinstance(p, str) for p in paths):
            raise JobError(f"{path}, line {number}: a job is an object with the paths problem and candidate")
        name = str(job.pop("id", number))
        if name in seen:
            raise JobError(f"{path}, line {number}: the id {name!r} occurs twice")
        seen.add(name)
        yield name, job


def _finished(out: Path) -> set[str]:
    """The ids of whole result lines; what was half written when the batch was killed is cut off."""
    if not out.exists():
        return set()
    data = out.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(out, len(whole))
    found = set()
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            found.add(str(json.loads(line)["id"]))
        except (ValueError, KeyError, TypeError) as error:
            raise JobError(f"{out}, line {number}: not a result of a batch", "name another file") from error
    return found
