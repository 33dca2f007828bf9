"""The judge's side of a candidate that Triton's interpreter runs: every configuration has its turn."""

from __future__ import annotations

import time

from harness.worker.rounds import Rounds
from harness.worker.trial import LOAD_LIMIT_S, Trial

MORE_ROUNDS = 48
MORE_S = 20.0


def run_configurations(trial: Trial, rounds: Rounds) -> None:
    """Further rounds until every configuration of the candidate's autotuned kernels has run.

    Each launch takes another one. What is left after `MORE_S` seconds is flagged. A candidate that lies about
    the number of its configurations only forgoes having them checked.
    """
    deadline = time.monotonic() + MORE_S
    for _ in range(MORE_ROUNDS):
        left, total = _configurations(trial)
        if not left:
            return
        if time.monotonic() > deadline:
            break
        rounds.one_more()
    left, total = _configurations(trial)
    if left:
        detail = f"{left} of {total} configurations of autotuned kernels were not run"
        trial.flag("configurations-unchecked", "warning", detail)


def _configurations(trial: Trial) -> tuple[int, int]:
    answer = trial.candidate.ask({"op": "configurations"}, LOAD_LIMIT_S)
    left, total = (answer.get(key) for key in ("left", "total"))
    return (left, total) if isinstance(left, int) and isinstance(total, int) else (0, 0)
