"""Adversarial and legitimate samples that are kept outside the repository."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Evaluation, LocalExecutor

pytestmark = pytest.mark.full

# What our reasons say where a sample's keywords use other words.
SYNONYMS = {
    "patched": "replace",
    "environment": "sniffing",
    "fallback": "did the work",
    "obfuscated": "hidden-code",
    "thread": "work on another thread",
    "memory": "all objects of the process",
    "protocol": "private channel",
    "timeout": "took longer than",
    "inputs": "get_inputs",
}


def _folder() -> Path | None:
    named = os.environ.get("KERNELEVOLVE_SHARED")
    shared = Path(named) if named else Path(__file__).resolve().parents[3] / "shared"
    return shared / "exploits" if (shared / "exploits").is_dir() else None


def _samples() -> list[object]:
    folder = _folder()
    if folder is None:
        return [
            pytest.param(None, marks=pytest.mark.skip("no ../shared/exploits and no KERNELEVOLVE_SHARED"))
        ]
    found = sorted(p.parent for kind in ("cpu", "legit") for p in (folder / kind).glob("*/meta.json"))
    assert found, f"{folder} holds no samples"
    return [pytest.param(path, id=f"{path.parent.name}-{path.name}") for path in found]


@pytest.mark.parametrize("path", _samples())
def test_sample(executor: LocalExecutor, evaluate: Callable[..., Evaluation], path: Path) -> None:
    meta = json.loads((path / "meta.json").read_text())
    result = evaluate(
        (path / "problem.py").read_text(),
        (path / "candidate.py").read_text(),
        timing_budget_s=1.0,
        run_limit_s=10.0,
        build_limit_s=400.0,
    )
    if meta["expected"] == "accept":
        assert result.status == "correct", result.reason
        return
    contained = meta.get("accept_if_contained") and result.status == "correct"
    if contained:
        return
    if meta.get("neutral_ok") and result.status == "correct":
        if any(f["rule"] == "busy-machine" for f in result.flags):
            pytest.skip("the machine is too busy to say that the speedup is an honest one")
        # Interpreted, a candidate is not timed and claims nothing.
        claimed = result.speedup if result.timed else 1.0
        assert claimed is not None
        assert claimed <= meta["max_honest_speedup"]
        return
    assert result.status not in ("correct", "harness_error", "invalid_problem"), result.reason
    if result.status == "rejected":  # what is incorrect need not know why
        said = " ".join([result.reason, *(f"{f['rule']} {f['detail']}" for f in result.flags)]).lower()
        words = [w for k in meta["reason_keywords"] for w in (k, SYNONYMS.get(k, k))]
        assert any(word in said for word in words), (result.reason, meta["reason_keywords"])
