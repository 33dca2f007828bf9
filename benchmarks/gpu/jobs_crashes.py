"""Write jobs for the crash course.

    python benchmarks/gpu/jobs_crashes.py [--target T] [--out jobs_crashes.jsonl]

The healthy candidate comes first and again after each that crashes, hangs or takes what is not its own.
"""

from __future__ import annotations

from jobs import HERE, arguments, job, write

FOLDER = HERE / "crashes"
LIMITS = {"run_limit_s": 10.0, "timing_budget_s": 1.0}


def main() -> None:
    options = arguments(__doc__ or "", "jobs_crashes.jsonl").parse_args()
    problem, healthy = FOLDER / "problem.py", FOLDER / "healthy.py"
    jobs = [job("healthy", problem, healthy, options.target, **LIMITS)]
    for crash in sorted(set(FOLDER.glob("*.py")) - {problem, healthy}):
        jobs.append(job(crash.stem, problem, crash, options.target, **LIMITS))
        jobs.append(job(f"healthy_after_{crash.stem}", problem, healthy, options.target, **LIMITS))
    write(options.out, jobs)


if __name__ == "__main__":
    main()
