"""Measures the curated skills: `python -m agent.recipe.evidence [SKILL …]` rewrites their evidence.json.

Each skill's `problem.py` is composed with that skill alone and default parameters, and judged by the harness
against eager PyTorch and torch.compile. Nothing in evidence.json is written by hand.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.recipe.library import names, record
from agent.recipe.skills import LIBRARY, ExecutableSkill
from agent.recipe.workbench import Workbench
from harness import Evaluation, EvaluationRequest, LocalExecutor

FILE = "evidence.json"


def measure(executor: LocalExecutor, name: str, timing_s: float) -> dict[str, Any]:
    """One evidence record of a curated skill. Raises ProblemError, Incompatible or Unsupported."""
    problem = (LIBRARY / name / "problem.py").read_text(encoding="utf-8")
    facts = executor.describe(problem, name)
    bench = Workbench(facts, [ExecutableSkill(record(name))])
    genome = bench.default()
    composition = bench.compose(genome)
    request = EvaluationRequest(
        problem, composition.source, problem_name=name, measure_compile=True, timing_budget_s=timing_s
    )
    verdict: Evaluation = executor.evaluate(request)
    return {
        "problem": "problem.py",
        "problem_sha256": hashlib.sha256(problem.encode()).hexdigest(),
        "shapes": [list(s.shape) for s in facts.inputs],
        "kernels": composition.kernels,
        "params": {key: gene.params for key, gene in genome.genes.items() if gene.skill},
        "status": verdict.status,
        "speedup": verdict.speedup,
        "speedup_ci": verdict.speedup_ci,
        "speedups": verdict.speedups,
        "baselines": verdict.baselines,
        "candidate_ms": verdict.candidate_ms,
        "correctness": verdict.correctness,
        "flags": [flag["rule"] for flag in verdict.flags],
        "device": verdict.device,
        "environment": verdict.environment,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 when a skill's kernel is not correct; its evidence says so."""
    parser = argparse.ArgumentParser(description="Measure the curated skills and rewrite their evidence.")
    parser.add_argument("skills", nargs="*", help="names; all by default")
    parser.add_argument("--timing", type=float, default=4.0, help="seconds of measuring per skill")
    options = parser.parse_args(arguments)
    failed = 0
    with (
        tempfile.TemporaryDirectory(prefix="kernelevolve-evidence-") as scratch,
        LocalExecutor(Path(scratch)) as executor,
    ):
        for name in options.skills or names():
            found = measure(executor, name, options.timing)
            path = LIBRARY / name / FILE
            path.write_text(json.dumps([found], indent=2) + "\n", encoding="utf-8")
            speedups = ", ".join(f"{k} {v}" for k, v in found["speedups"].items())
            sys.stderr.write(f"{name}: {found['status']}, {found['speedup']}x of eager ({speedups})\n")
            failed += found["status"] != "correct"
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
