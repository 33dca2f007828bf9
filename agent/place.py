"""Where candidates run: the target's properties and the ceilings measured there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Place:
    """`facts` go into prompts; `ceilings` (measured, {} if unknown) bound a candidate."""

    target: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    ceilings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, cache_dir: Path) -> Place:
        """Look the target up and, for the CPU, measure its ceilings once (cached). Raises TargetError."""
        from harness.target import get_target

        target = get_target(name)
        facts = {
            "name": target.name,
            "vendor": target.vendor,
            "architecture": target.architecture,
            "languages": list(target.languages),
            "limits": dict(target.limits),
            **target.facts,
        }
        if target.name != "cpu":
            return cls(name, facts)
        from harness.calibrate import cpu_ceilings

        return cls(name, facts, cpu_ceilings(cache_dir))
