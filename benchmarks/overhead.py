"""What an evaluation costs besides the kernels' own time: this harness beside KernelBench's `eval.py`.

    python benchmarks/overhead.py [--target nvidia:sm_90] [--kernelbench CHECKOUT] [NAME …]

Both judge the same ten candidates of `benchmarks/gpu` (or `--folder`) in one run, all of them float32, as
KernelBench gives every input one type. Ours: an executor that has evaluated once
before, with its usual budget and for correctness alone. KernelBench's: `eval_kernel_against_ref` with five
trials of correctness and a hundred of performance, once in a process that has evaluated before, and once in a
process of its own for each candidate, as its scripts do it. Compilation is part of all of them: caches are
fresh. KernelBench needs a CUDA device; without one, or without a checkout, its columns stay empty.

The table goes to `benchmarks/results/overhead_TARGET.md` (or `--out`).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TEN = (
    *("bias_gelu", "gelu_residual", "groupnorm_silu", "huber_loss", "l2_normalize"),
    *("layernorm", "leaky_relu_scale_clamp", "log_softmax", "logsumexp", "row_max"),
)
# KernelBench's package imports clients of model providers, which evaluating does not need. Where they are not
# installed, empty modules stand in for them.
CLIENTS = {
    "litellm": ("completion",),
    "openai": ("OpenAI",),
    "dotenv": ("load_dotenv",),
    "requests": (),
    "tqdm": ("tqdm",),
}
TRIALS = {"num_correct_trials": 5, "num_perf_trials": 100, "measure_performance": True, "backend": "triton"}


def ours(folder: Path, names: list[str], target: str) -> dict[str, dict[str, Any]]:
    """Seconds and verdicts of this harness."""
    from harness import EvaluationRequest, LocalExecutor

    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as cache, LocalExecutor(Path(cache)) as executor:
        for name in [names[0], *names]:  # the first one warms up
            row: dict[str, Any] = {}
            for kind, budget in (("correctness", 0.0), ("timed", 3.0)):
                request = EvaluationRequest(
                    *_sources(folder / name), problem_name=name, target=target, timing_budget_s=budget
                )
                start = time.perf_counter()
                evaluation = executor.evaluate(request)
                row[f"{kind}_s"] = time.perf_counter() - start
            row |= {"status": evaluation.status, "speedup": evaluation.speedup, "reason": evaluation.reason}
            found[name] = row | {"device": evaluation.device, "environment": evaluation.environment}
            sys.stderr.write(f"{name}: {row}\n")
    return found


def theirs(folder: Path, names: list[str], checkout: Path, *, alone: bool) -> dict[str, dict[str, Any]]:
    """Seconds and verdicts of KernelBench; `alone`: a process for each candidate, seconds of the process."""
    found: dict[str, dict[str, Any]] = {}
    for group in [[name] for name in names] if alone else [[names[0], *names]]:
        with tempfile.TemporaryDirectory() as cache:
            start = time.perf_counter()
            done = subprocess.run(
                [
                    sys.executable,
                    __file__,
                    "--folder",
                    str(folder),
                    "--kernelbench",
                    str(checkout),
                    "--child",
                    *group,
                ],
                env={**os.environ, "TRITON_CACHE_DIR": cache},
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            seconds = time.perf_counter() - start
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
        for line in lines:
            found[line["name"]] = {**line, "seconds": seconds} if alone else line
    return found


def child(folder: Path, names: list[str], checkout: Path) -> None:
    """Runs KernelBench's evaluation in this process; a JSON line each."""
    for module, attributes in CLIENTS.items():
        try:
            __import__(module)
        except ImportError:
            empty = types.ModuleType(module)
            for attribute in attributes:
                setattr(empty, attribute, lambda *_args, **_options: None)
            sys.modules[module] = empty
    sys.path.insert(0, str(checkout / "src"))
    import torch
    from kernelbench.eval import eval_kernel_against_ref

    for name in names:
        start = time.perf_counter()
        result = eval_kernel_against_ref(*_sources(folder / name), device=torch.device("cuda:0"), **TRIALS)
        seconds = time.perf_counter() - start
        answer = {"name": name, "seconds": seconds, "correct": bool(result and result.correctness)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def render(rows: dict[str, dict[str, Any]], warm: dict[str, Any], alone: dict[str, Any], command: str) -> str:
    """The table, in Markdown."""
    first = next(iter(rows.values()))
    facts = ", ".join(f"{key} {value}" for key, value in sorted(first["environment"].items()))
    out = [
        "# Seconds per evaluation",
        "",
        f"`{command}`, {datetime.date.today().isoformat()}, {first['device']}. {facts}.",
        "",
        "Compilation included, caches fresh. KernelBench: `eval_kernel_against_ref`, 5 trials of "
        "correctness, 100 of performance.",
        "",
        "| candidate | ours, correctness | ours, timed | verdict | KernelBench, warm process | "
        "KernelBench, own process | its verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    columns = [
        {name: row["correctness_s"] for name, row in rows.items()},
        {name: row["timed_s"] for name, row in rows.items()},
        {name: row["seconds"] for name, row in warm.items()},
        {name: row["seconds"] for name, row in alone.items()},
    ]

    def seconds(column: dict[str, float], name: str) -> str:
        return f"{column[name]:.2f}" if name in column else "–"

    for name, row in rows.items():
        speedup = f", {row['speedup']:.2f}x" if row["speedup"] is not None else ""
        verdict = {True: "correct", False: "incorrect"}.get(warm.get(name, {}).get("correct"), "–")
        cells = [name, seconds(columns[0], name), seconds(columns[1], name), row["status"] + speedup]
        cells += [seconds(columns[2], name), seconds(columns[3], name), verdict]
        out.append("| " + " | ".join(cells) + " |")
    medians = [f"{statistics.median(c.values()):.2f}" if c else "–" for c in columns]
    out += [f"| **median** | {medians[0]} | {medians[1]} | | {medians[2]} | {medians[3]} | |", ""]
    return "\n".join(out)


def _sources(folder: Path) -> tuple[str, str]:
    problem, candidate = folder / "problem.py", folder / "candidate.py"
    return problem.read_text(encoding="utf-8"), candidate.read_text(encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(TEN))
    parser.add_argument("--target", default="nvidia:sm_90")
    parser.add_argument("--folder", type=Path, default=ROOT / "benchmarks" / "gpu")
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.folder, options.names, options.kernelbench)
        return
    rows = ours(options.folder, options.names, options.target)
    warm: dict[str, Any] = {}
    alone: dict[str, Any] = {}
    if options.kernelbench and options.target.startswith("nvidia:"):
        warm = theirs(options.folder, options.names, options.kernelbench, alone=False)
        alone = theirs(options.folder, options.names, options.kernelbench, alone=True)
    command = "python benchmarks/overhead.py --target " + options.target
    command += " --kernelbench CHECKOUT" if options.kernelbench else ""
    name = f"overhead_{options.target.replace(':', '_')}.md"
    path = options.out or ROOT / "benchmarks" / "results" / name
    path.write_text(render(rows, warm, alone, command), encoding="utf-8")


if __name__ == "__main__":
    main()
