"""Training data from recorded runs: what a model saw at each step, what it answered, what that was worth."""

from __future__ import annotations

from agent.export.records import FORMATS, Export, export_runs
from agent.export.sources import UNKNOWN

__all__ = ["FORMATS", "UNKNOWN", "Export", "export_runs"]
