"""Turn results of a batch into a Markdown table.

    python benchmarks/gpu/table.py results.jsonl [--copy-gb-s N] [--command C] [--date D] > table.md

`--copy-gb-s` is the copy bandwidth measured on that device, read plus written, in 1e9 bytes a second; without
it there is no column of shares.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from traffic import Traffic, traffic

HERE = Path(__file__).resolve().parent
COMMAND = "python worker.pyz batch jobs.jsonl --out results.jsonl"
# Below this many matrix operations per byte a kernel is bound by memory on every device that we know.
MEMORY_BOUND = 50.0
NOTHING = "–"

Row = dict[str, Any]


def render(
    results: Sequence[Row],
    *,
    command: str,
    date: str,
    copy_gb_s: float | None = None,
    traffic_of: Callable[[str], Traffic | None] = lambda _: None,
) -> str:
    """`results`: lines `{"id", "wall_s", "evaluation"}` of a batch. `traffic_of` maps an id to what that
    problem moves, or None where that is not known.
    """
    header = ["problem", "status", "vs eager [95 %]", "vs torch.compile [95 %]", "candidate ms"]
    header += [*(["share of copy"] if copy_gb_s else []), "own kernels", "flags", "wall s"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for result in results:
        share = [_share(result, copy_gb_s, traffic_of)] if copy_gb_s else []
        lines.append("| " + " | ".join(_cells(result, share)) + " |")
    parts = [f"`{command}`, {date}.", *_environments(results)]
    if copy_gb_s:
        parts.append(
            f"Measured copy bandwidth {copy_gb_s:.0f} GB/s (read plus written); a share is inputs, weights "
            "and outputs once each over that bandwidth, divided by the candidate's time, where that is "
            "bound by memory (a gather may read less than its whole table). Caches are cold."
        )
    return "\n\n".join([*parts, "\n".join(lines), _totals(results)]) + "\n"


def _cells(result: Row, share: list[str]) -> list[str]:
    evaluation = result["evaluation"]
    speedups = evaluation.get("speedups") or {}
    ms = (evaluation.get("candidate_ms") or {}).get("median")
    own = evaluation.get("custom_kernel_share")
    flags = [flag["rule"] for flag in evaluation.get("flags") or [] if flag["severity"] != "info"]
    return [
        str(result["id"]),
        _status(evaluation),
        _interval(speedups.get("eager")),
        _interval(speedups.get("compile")),
        NOTHING if ms is None else f"{ms:.4f}",
        *share,
        NOTHING if own is None else f"{own:.0%}",
        ", ".join(dict.fromkeys(flags)) or NOTHING,
        f"{result.get('wall_s', 0.0):.1f}",
    ]


def _status(evaluation: Row) -> str:
    """With the reason where there is something to explain, safe inside a table."""
    if evaluation["status"] == "correct":
        return "correct"
    reason = " ".join(str(evaluation.get("reason", "")).split()).replace("|", "\\|")
    return f"{evaluation['status']}: {reason[:160]}" if reason else str(evaluation["status"])


def _interval(entry: dict[str, float] | None) -> str:
    return f"{entry['speedup']:.2f} [{entry['lo']:.2f}, {entry['hi']:.2f}]" if entry else NOTHING


def _share(result: Row, copy_gb_s: float | None, traffic_of: Callable[[str], Traffic | None]) -> str:
    ms = (result["evaluation"].get("candidate_ms") or {}).get("median")
    if not ms or not copy_gb_s:
        return NOTHING
    moved = traffic_of(str(result["id"]))
    if moved is None or moved.flops > MEMORY_BOUND * moved.bytes:
        return NOTHING
    return f"{moved.bytes / (copy_gb_s * 1e9) / (ms * 1e-3):.0%}"


def _environments(results: Sequence[Row]) -> list[str]:
    """One line for each device and environment that occurs."""
    seen: dict[str, None] = {}
    for result in results:
        evaluation = result["evaluation"]
        facts = ", ".join(f"{k} {v}" for k, v in sorted((evaluation.get("environment") or {}).items()))
        if evaluation.get("device"):
            seen[f"{evaluation['device']} ({evaluation.get('target', '')}): {facts}."] = None
    return list(seen)


def _totals(results: Sequence[Row]) -> str:
    statuses = Counter(str(r["evaluation"]["status"]) for r in results)
    wins = {
        name: sum(
            ((r["evaluation"].get("speedups") or {}).get(name) or {}).get("lo", 0.0) > 1.0 for r in results
        )
        for name in ("eager", "compile")
    }
    told = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
    return (
        f"{len(results)} jobs: {told}. Lower end of the interval above 1: {wins['eager']} against eager, "
        f"{wins['compile']} against torch.compile."
    )


def _traffic_of(name: str) -> Traffic | None:
    problem = HERE / name / "problem.py"
    return traffic(problem) if problem.is_file() else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--copy-gb-s", type=float)
    parser.add_argument("--command", default=COMMAND)
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    options = parser.parse_args()
    results = [json.loads(line) for line in options.results.read_text(encoding="utf-8").splitlines() if line]
    sys.stdout.write(
        render(
            results,
            command=options.command,
            date=options.date,
            copy_gb_s=options.copy_gb_s,
            traffic_of=_traffic_of,
        )
    )


if __name__ == "__main__":
    main()
