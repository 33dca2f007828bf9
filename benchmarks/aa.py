"""A/A study: the reference against itself. How often does the harness call a win or a loss that is none?

    python benchmarks/aa.py run [--target cpu] [--count 400] [--minutes 60] [--budget 3] [PROBLEM …]
    python benchmarks/aa.py jobs [--target nvidia:sm_90] [--count 400] [--budget 3] [--out FILE] [PROBLEM …]
    python benchmarks/aa.py table RESULTS.jsonl

The candidate is the problem's own file with its class renamed. `run` evaluates here, writes a line per
evaluation to `benchmarks/results/aa_TARGET.jsonl` and the table beside it, and goes on where an earlier call
stopped. `jobs` writes a batch for a packed worker on another machine; `table` reads what came back.

A win is an interval above 1, a loss one below. At most 8 % of the evaluations should be either; 5 % is what
95 % intervals aim at.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
LIMIT = 0.08

Row = dict[str, Any]


def renamed(source: str) -> str:
    """The same program with `Model` called `ModelNew`."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            node.name = "ModelNew"
        elif isinstance(node, ast.Name) and node.id == "Model":
            node.id = "ModelNew"
    return ast.unparse(tree)


def row_of(problem: str, evaluation: Row) -> Row:
    """What the study needs of an evaluation."""
    low, high = evaluation.get("speedup_ci") or (None, None)
    return {
        "problem": problem,
        "status": evaluation["status"],
        "reason": "" if evaluation["status"] == "correct" else evaluation["reason"],
        "speedup": evaluation.get("speedup"),
        "low": low,
        "high": high,
        "flags": sorted({flag["rule"] for flag in evaluation["flags"]}),
        "device": evaluation["device"],
        "environment": evaluation["environment"],
    }


def called(row: Row) -> str:
    """`win`, `loss` or `equal`."""
    if row["low"] is None:
        return row["status"]
    return "win" if row["low"] > 1.0 else "loss" if row["high"] < 1.0 else "equal"


def upper(hits: int, of: int) -> float:
    """Upper end of the 95 % Wilson interval of a share."""
    if not of:
        return 1.0
    z, share = 1.96, hits / of
    spread = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return (share + z * z / (2 * of) + spread) / (1 + z * z / of)


def render(rows: Sequence[Row], command: str, date: str) -> str:
    """The table, in Markdown."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["problem"]].append(row)
    first = rows[0]["environment"] if rows else {}
    facts = ", ".join(f"{key} {value}" for key, value in sorted(first.items()))
    out = [
        "# The reference against itself",
        "",
        f"`{command}`, {date}, {rows[0]['device'] if rows else 'nothing measured'}. {facts}.",
        "",
        "| problem | evaluations | wins | losses | median ratio | median width of the interval | disturbed |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, group in [*sorted(groups.items()), ("**all**", list(rows))]:
        timed = [row for row in group if row["low"] is not None]
        ratio = statistics.median(row["speedup"] for row in timed) if timed else math.nan
        width = statistics.median(row["high"] - row["low"] for row in timed) if timed else math.nan
        calls = [called(row) for row in timed]
        disturbed = sum("busy-machine" in row["flags"] for row in timed)
        cells = (
            len(timed),
            calls.count("win"),
            calls.count("loss"),
            f"{ratio:.3f}",
            f"{width:.3f}",
            disturbed,
        )
        out.append(f"| {name} | " + " | ".join(map(str, cells)) + " |")
    timed = [row for row in rows if row["low"] is not None]
    hits = sum(called(row) != "equal" for row in timed)
    quiet = [row for row in timed if "busy-machine" not in row["flags"]]
    quiet_hits = sum(called(row) != "equal" for row in quiet)
    out += [
        "",
        f"Called a win or a loss: {hits} of {len(timed)} ({hits / max(1, len(timed)):.1%}, at most "
        f"{upper(hits, len(timed)):.1%} with 95 % confidence); of those on an undisturbed machine "
        f"{quiet_hits} of {len(quiet)}. Wanted: at most {LIMIT:.0%}.",
    ]
    failed = [row for row in rows if row["low"] is None]
    if failed:
        out.append(f"Not timed: {len(failed)} (the first: {failed[0]['status']}, {failed[0]['reason']}).")
    return "\n".join([*out, ""])


def run(options: argparse.Namespace) -> None:
    """Evaluates until all are done or the time is up."""
    from harness import EvaluationRequest, LocalExecutor

    path = RESULTS / f"aa_{options.target.replace(':', '_')}.jsonl"
    rows = read(path)
    deadline = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as cache, LocalExecutor(Path(cache)) as executor:
        while len(rows) < options.count and time.monotonic() < deadline:
            problem = options.problems[len(rows) % len(options.problems)]
            source = problem.read_text(encoding="utf-8")
            request = EvaluationRequest(
                source, renamed(source), problem.stem, options.target, timing_budget_s=options.budget
            )
            rows.append(row_of(problem.stem, asdict(executor.evaluate(request))))
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1], sort_keys=True) + "\n")
            sys.stderr.write(f"{len(rows)} {problem.stem}: {called(rows[-1])} {rows[-1]['speedup']}\n")
    command = f"python benchmarks/aa.py run --target {options.target} --count {options.count}"
    command += f" --budget {options.budget:g}"
    path.with_suffix(".md").write_text(render(rows, command, _today()), encoding="utf-8")


def jobs(options: argparse.Namespace) -> None:
    """Candidates beside the batch, and one line for each evaluation."""
    folder = options.out.resolve().parent / "aa_candidates"
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(options.count):
        problem = options.problems[number % len(options.problems)]
        candidate = folder / f"{problem.stem}.py"
        candidate.write_text(renamed(problem.read_text(encoding="utf-8")), encoding="utf-8")
        paths = {"problem": str(problem), "candidate": str(candidate)}
        settings = {"target": options.target, "timing_budget_s": options.budget}
        lines.append({"id": f"{problem.stem}#{number}", **settings, **paths})
    options.out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def table(options: argparse.Namespace) -> None:
    """Prints the table of a file that `run` or a batch wrote."""
    print(render(read(options.results), options.command, options.date))  # noqa: T201


def read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        row_of(line["id"].partition("#")[0], line["evaluation"]) if "id" in line else line for line in lines
    ]


def _today() -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return f"{datetime.date.today().isoformat()}, commit {commit.stdout.strip() or 'unknown'}"


def _problems(given: Iterable[Path]) -> list[Path]:
    return [path.resolve() for path in given] or sorted((ROOT / "examples" / "problems").glob("*.py"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for action, target in ((run, "cpu"), (jobs, "nvidia:sm_90")):
        one = commands.add_parser(action.__name__)
        one.set_defaults(action=action)
        one.add_argument("problems", nargs="*", type=Path)
        one.add_argument("--target", default=target)
        one.add_argument("--count", type=int, default=400)
        one.add_argument("--minutes", type=float, default=60.0)
        one.add_argument("--budget", type=float, default=3.0)
        one.add_argument("--out", type=Path, default=Path("jobs.jsonl"))
    one = commands.add_parser("table")
    one.set_defaults(action=table)
    one.add_argument("results", type=Path)
    one.add_argument("--command", default="python worker.pyz batch jobs.jsonl --out results.jsonl")
    one.add_argument("--date", default=_today())
    options = parser.parse_args()
    if "problems" in options:
        options.problems = _problems(options.problems)
    options.action(options)


if __name__ == "__main__":
    main()
