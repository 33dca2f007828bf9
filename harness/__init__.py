"""Problems, targets and the isolated evaluation of candidates.

`import harness` is light: torch is loaded only by the worker process and by what needs a tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.executor import Executor, LocalExecutor
    from harness.spool import SpoolExecutor
    from harness.worker.model import Evaluation, EvaluationRequest, ProblemFacts

_HOMES = {
    "Executor": "harness.executor",
    "LocalExecutor": "harness.executor",
    "SpoolExecutor": "harness.spool",
    "Evaluation": "harness.worker.model",
    "EvaluationRequest": "harness.worker.model",
    "ProblemFacts": "harness.worker.model",
}

__all__ = ["Evaluation", "EvaluationRequest", "Executor", "LocalExecutor", "ProblemFacts", "SpoolExecutor"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'harness' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
