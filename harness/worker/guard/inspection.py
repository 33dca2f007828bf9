"""Static analysis of a candidate: what is cheating on its face, and which kernels it has.

The rules (`guard_checks`, `guard_phase`) follow names through the file (`guard_flow`). What can be hidden
from them is left to evidence at run time and to the separation of processes. Words are never judged.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, field

from harness.worker.guard.checks import inspect_flow
from harness.worker.guard.flow import Flow, TooComplex
from harness.worker.guard.kernels import Kernels, find_kernels
from harness.worker.guard.phase import find_phase_sniffing
from harness.worker.guard.rules import RULES, Finding

__all__ = ["RULES", "Finding", "Inspection", "Kernels", "inspect_candidate"]

DEPTH = 20_000  # frames: what the parser takes can be followed


@dataclass(frozen=True)
class Inspection:
    """`findings` in source order (`severity` says whether one rejects), and the kernels of the file.

    `complete` is False where the file is too large or too deeply nested to be followed to its end.
    """

    findings: list[Finding] = field(default_factory=list)
    kernels: Kernels = field(default_factory=Kernels)
    complete: bool = True


def inspect_candidate(tree: ast.Module) -> Inspection:
    """Applies all static rules to a file."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, DEPTH))
    try:
        flow = Flow(tree)
        findings = [*inspect_flow(flow), *find_phase_sniffing(flow)]
        return Inspection(sorted(findings, key=lambda f: f.line), find_kernels(flow))
    except (RecursionError, TooComplex):
        return Inspection(complete=False)
    finally:
        sys.setrecursionlimit(limit)
