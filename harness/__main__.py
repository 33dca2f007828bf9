"""`python -m harness`, which is also what a packed worker runs: the judge without the rest of the product.

Needs the standard library, torch and Triton alone. Documents and exit codes are those of `kernelevolve`: with
`--json`, one document on the last line of standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from harness.errors import HarnessError, ProblemError, TargetUnknown
from harness.jobs import JobError, plain
from harness.worker import model
from harness.worker.model import EXIT_CODES, SCHEMA_VERSION, Evaluation, EvaluationRequest

USAGE, ENVIRONMENT, INTERRUPTED = 2, 3, 130
_DEFAULTS = EvaluationRequest("", "")


def main(arguments: Sequence[str] | None = None, program: str = "python -m harness") -> int:
    """Runs one command line and returns its exit code."""
    options = _parser(program).parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        return _fail(options, "Interrupted", "interrupted", "", INTERRUPTED)
    except HarnessError as error:
        usage = isinstance(error, ProblemError | TargetUnknown | JobError)
        return _fail(options, type(error).__name__, str(error), error.hint, USAGE if usage else ENVIRONMENT)
    except (OSError, UnicodeDecodeError) as error:
        usage = isinstance(error, FileNotFoundError | IsADirectoryError | UnicodeDecodeError)
        return _fail(options, type(error).__name__, str(error), "", USAGE if usage else ENVIRONMENT)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description="Judges candidate kernels.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    evaluate = commands.add_parser("eval", help="judge one candidate")
    evaluate.add_argument("problem", help="a KernelBench-style Python file")
    evaluate.add_argument("candidate", type=Path, help="a Python file with class ModelNew")
    evaluate.add_argument("--target", default=_DEFAULTS.target)
    for name, choices in (
        ("baseline", model.Baseline),
        ("precision", model.Precision),
        ("policy", model.Policy),
        ("profile", model.Profile),
    ):
        evaluate.add_argument(f"--{name}", choices=get_args(choices), default=getattr(_DEFAULTS, name))
    evaluate.add_argument("--emit", type=Path, metavar="DIR", help="a folder for what compilers made")
    evaluate.add_argument("--rounds", type=int, default=_DEFAULTS.rounds)
    evaluate.add_argument(
        "--timing-budget", type=float, default=_DEFAULTS.timing_budget_s, metavar="S", help="0: do not time"
    )
    evaluate.add_argument("--seed", type=int, help="reproduces a verdict; secret by default")
    _common(evaluate, _evaluate)

    batch = commands.add_parser("batch", help="judge many candidates, one after another")
    batch.add_argument("jobs", type=Path, help="lines of {id, problem: path, candidate: path, …}")
    batch.add_argument("--out", type=Path, required=True, help="result lines; finished ids are not run again")
    _common(batch, _batch)

    worker = commands.add_parser("worker", help="judge what arrives in a folder")
    worker.add_argument("--spool", type=Path, required=True, metavar="DIR", help="a shared or copied folder")
    worker.add_argument("--once", action="store_const", const=0.0, dest="idle_exit", help="until none waits")
    worker.add_argument("--idle-exit", type=float, metavar="S", help="end after S seconds without a job")
    _common(worker, _worker)

    doctor = commands.add_parser("doctor", help="check this machine")
    doctor.add_argument("--json", action="store_true", dest="as_json")
    doctor.set_defaults(run=_doctor)
    return parser


def _common(command: argparse.ArgumentParser, run: Any) -> None:
    command.add_argument("--require-sandbox", action="store_true", help="fail rather than use a weaker jail")
    command.add_argument(
        "--cache",
        type=Path,
        default=_cache_folder(),
        help="what outlives an evaluation (default: %(default)s)",
    )
    command.add_argument("--json", action="store_true", dest="as_json")
    command.set_defaults(run=run)


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "kernelevolve"


def _evaluate(options: argparse.Namespace) -> int:
    from harness.executor import LocalExecutor
    from harness.problem import load_problem
    from harness.target import get_target

    get_target(options.target)
    candidate = options.candidate.read_text(encoding="utf-8")
    try:
        problem = load_problem(options.problem)
    except ProblemError as error:
        if not Path(options.problem).is_file():
            raise
        # A file that is no problem is a verdict like any other, not a mistake on the command line.
        evaluation = Evaluation(
            "invalid_problem", str(error), target=options.target, baseline=options.baseline
        )
    else:
        request = EvaluationRequest(
            problem=problem.source,
            candidate=candidate,
            problem_name=problem.name,
            target=options.target,
            baseline=options.baseline,
            measure_compile=options.baseline == "compile",
            rounds=options.rounds,
            seed=options.seed,
            timing_budget_s=options.timing_budget,
            policy=options.policy,
            precision=options.precision,
            profile="static" if options.emit and options.profile == "none" else options.profile,
            emit=options.emit is not None,
        )
        with LocalExecutor(options.cache, options.require_sandbox, ahead=options.target) as executor:
            evaluation = executor.evaluate(request)
        if options.emit is not None:
            evaluation.write_emitted(options.emit)
    if options.as_json:
        _emit(evaluation.to_json())
    else:
        _say(f"{evaluation.status}: {evaluation.reason}")
        for flag in evaluation.flags:
            _say(f"flag {flag['rule']} ({flag['severity']}): {flag['detail']}")
    return EXIT_CODES[evaluation.status]


def _batch(options: argparse.Namespace) -> int:
    """Exit code 3 if the harness itself failed on a job; a verdict, whichever, is what was asked for."""
    from harness.batch import run_batch
    from harness.executor import LocalExecutor

    def progress(name: str, wall_s: float, evaluation: Evaluation) -> None:
        sys.stderr.write(f"{name}: {evaluation.status} ({wall_s:.1f} s) {evaluation.reason}\n")

    with LocalExecutor(options.cache, options.require_sandbox, ahead=None) as executor:
        counts = run_batch(executor, options.jobs, options.out, progress)
    if options.as_json:
        _emit({"out": str(options.out), "jobs": sum(counts.values()), "statuses": counts})
    return ENVIRONMENT if counts.get("harness_error") else 0


def _worker(options: argparse.Namespace) -> int:
    from harness.executor import LocalExecutor
    from harness.spool import Spool
    from harness.spool_worker import SpoolWorker, summary

    def report(name: str, answer: dict[str, Any], wall_s: float) -> None:
        sys.stderr.write(f"{name}: {summary(answer)} ({wall_s:.1f} s)\n")

    spool = Spool(options.spool)
    with LocalExecutor(options.cache, options.require_sandbox, ahead=None) as executor:
        jobs = SpoolWorker(spool, executor, report).run(options.idle_exit)
    if options.as_json:
        _emit({"jobs": jobs})
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from harness.doctor import checks

    found = checks()
    good = all(c.ok for c in found if c.essential)
    if options.as_json:
        _emit({"ok": good, "checks": [asdict(c) for c in found]})
    else:
        for c in found:
            _say(f"{'ok  ' if c.ok else 'FAIL' if c.essential else 'warn'} {c.name}: {c.detail}")
    return 0 if good else ENVIRONMENT


def _fail(options: argparse.Namespace, kind: str, message: str, hint: str, code: int) -> int:
    if options.as_json:
        _emit({"error": {"type": kind, "message": message, "hint": hint}})
    else:
        sys.stderr.write(f"error: {message}\n" + (f"hint: {hint}\n" if hint else ""))
    return code


def _emit(document: dict[str, Any]) -> None:
    data = plain({"schema_version": SCHEMA_VERSION, **document})
    _say(json.dumps(data, separators=(",", ":"), allow_nan=False))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
