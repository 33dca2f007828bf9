"""Write a job for every problem here.

    python benchmarks/gpu/jobs.py [--target T] [--out jobs.jsonl] [NAME …]

Paths in the file are relative to the current folder, from which the batch must be run, too.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def names() -> list[str]:
    return sorted(path.parent.name for path in HERE.glob("*/candidate.py"))


def job(name: str, problem: Path, candidate: Path, target: str, **more: Any) -> dict[str, Any]:
    paths = {"problem": os.path.relpath(problem), "candidate": os.path.relpath(candidate)}
    return {"id": name, "problem_name": name, **paths, "target": target, **more}


def write(path: Path, jobs: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in jobs), encoding="utf-8")


def arguments(description: str, out: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="nvidia:sm_90")
    parser.add_argument("--out", type=Path, default=Path(out))
    return parser


def main() -> None:
    parser = arguments(__doc__ or "", "jobs.jsonl")
    parser.add_argument("names", nargs="*", help="problems (default: all)")
    options = parser.parse_args()
    known = names()
    unknown = sorted(set(options.names) - set(known))
    if unknown:
        raise SystemExit(f"no such problems: {', '.join(unknown)} (known: {', '.join(known)})")
    jobs = [
        job(
            name,
            HERE / name / "problem.py",
            HERE / name / "candidate.py",
            options.target,
            measure_compile=True,
        )
        for name in options.names or known
    ]
    write(options.out, jobs)


if __name__ == "__main__":
    main()
