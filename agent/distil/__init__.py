"""Distil: winners become skills through an admission test, and skills are measured again where they are."""

from __future__ import annotations

from agent.distil.admission import Distilled, distil
from agent.distil.staleness import mark_stale
from agent.distil.verify import Verified, verify

__all__ = ["Distilled", "Verified", "distil", "mark_stale", "verify"]
