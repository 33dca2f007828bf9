"""Search every example problem on this CPU and write the table of what was found.

    python benchmarks/problems.py [--steps 16] [--time-limit 170] [PROBLEM …]

Each problem is searched by the `kernelevolve search` command with the embedded generator. Result lines go to
`benchmarks/results/cpu_problems.jsonl`; the table made from them to `benchmarks/results/cpu_problems.md`.
Baselines and candidate are interleaved in one measurement, so the ratios are of one run; the times in
milliseconds move with the machine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def search(problem: Path, steps: int, time_limit: int, home: Path) -> dict[str, Any]:
    """Run one search and return its JSON document (an `error` document where it failed)."""
    command = [str(Path(sys.executable).with_name("kernelevolve")), "search", str(problem)]
    command += ["--target", "cpu", "--generator", "recipe"]
    command += ["--steps", str(steps), "--time-limit", str(time_limit), "--json"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "KERNELEVOLVE_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if not lines:
        raise SystemExit(f"{' '.join(command)} printed nothing (exit code {done.returncode})")
    document: dict[str, Any] = json.loads(lines[-1])
    document.pop("report", None)  # the home goes away; so do its paths
    (document.get("best") or {}).pop("path", None)
    return {"problem": problem.stem, "exit_code": done.returncode, **document}


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def interval(entry: dict[str, float] | None) -> str:
    if not entry:
        return "–"
    return f"{entry['speedup']:.2f} [{entry['lo']:.2f}, {entry['hi']:.2f}]"


def table(rows: list[dict[str, Any]], command: str) -> str:
    import torch

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    out = [
        "# Example problems on a CPU",
        "",
        f"`{command}`, {datetime.date.today().isoformat()}, commit {commit.stdout.strip() or 'unknown'}, "
        f"{cpu_name()}, {os.cpu_count()} cores, torch {torch.__version__}.",
        "",
        "Speedups are the final verification of each run's best kernel, with 95 % bootstrap intervals. "
        "A kernel that is the compiler's own code is marked and not counted as a win.",
        "",
        "| problem | eager ms | compile ms | best ms | vs eager | vs torch.compile | steps | correct |",
        "|---|---|---|---|---|---|---|---|",
    ]
    wins = {"eager": 0, "compile": 0}
    for row in rows:
        best = row.get("best")
        if not best:
            cells = [row["problem"], *["–"] * 5, str(row.get("steps", "–")), str(row.get("valid", "–"))]
            out.append("| " + " | ".join(cells) + " |")
            continue
        speedups = best["speedups"]
        made = " (compiler's code)" if best.get("compiler_made") else ""
        for name in wins:
            wins[name] += int(not made and name in speedups and speedups[name]["lo"] > 1.0)
        ms = best["baselines"]
        cells = [
            row["problem"] + made,
            f"{ms['eager_ms']:.2f}",
            f"{ms['compile_ms']:.2f}" if ms.get("compile_ms") else "–",
            f"{best['candidate_ms']['median']:.2f}",
            interval(speedups.get("eager")),
            interval(speedups.get("compile")),
            str(row["steps"]),
            str(row["valid"]),
        ]
        out.append("| " + " | ".join(cells) + " |")
    out += [
        "",
        f"Lower end above 1.0: against eager {wins['eager']} of {len(rows)}, "
        f"against torch.compile {wins['compile']} of {len(rows)}.",
        "",
    ]
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problems", nargs="*", type=Path)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--time-limit", type=int, default=170)
    args = parser.parse_args()
    problems = args.problems or sorted((ROOT / "examples" / "problems").glob("*.py"))
    rows = []
    with tempfile.TemporaryDirectory() as home:
        for problem in problems:
            rows.append(search(problem, args.steps, args.time_limit, Path(home)))
            sys.stderr.write(f"{problem.stem}: {json.dumps(rows[-1].get('best'))}\n")
    RESULTS.mkdir(parents=True, exist_ok=True)
    command = f"python benchmarks/problems.py --steps {args.steps} --time-limit {args.time_limit}"
    (RESULTS / "cpu_problems.jsonl").write_text(
        "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    )
    (RESULTS / "cpu_problems.md").write_text(table(rows, command))


if __name__ == "__main__":
    main()
