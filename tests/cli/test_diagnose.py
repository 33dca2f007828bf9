"""`kernelevolve diagnose`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("KERNELEVOLVE_SHARED") or Path(__file__).resolve().parents[3] / "shared")
KERNEL_KEYS = {"name", "duration_us", "bottleneck", "evidence", "actions", "metrics", "missing"}


@pytest.mark.skipif(not SHARED.is_dir(), reason="no sample traces beside the repository")
def test_trace(cli: Any) -> None:
    trace = SHARED / "traces" / "ncu" / "h200_raw.csv"
    result = cli("diagnose", trace, "--json")
    document = result.json
    assert set(document) == {"schema_version", "format", "kernels", "errors"}
    assert document["kernels"]
    assert all(kernel.keys() >= KERNEL_KEYS for kernel in document["kernels"])
    assert result.code == (1 if document["errors"] else 0)
    human = cli("diagnose", trace)
    assert document["kernels"][0]["name"][:20] in human.out
    assert document["kernels"][0]["bottleneck"] in human.out


def test_not_a_trace(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": 1}')
    result = cli("diagnose", tmp_path / "x.json", "--json")
    assert result.code == 2
    assert result.json["error"]["hint"]
