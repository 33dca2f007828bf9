from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The stubs are a module, because a test also runs them as a program.
sys.path.insert(0, str(Path(__file__).parent))

from kb import KnowledgeBase


@pytest.fixture
def kb(tmp_path: Path) -> Iterator[KnowledgeBase]:
    from search_stubs import open_kb

    with open_kb(tmp_path / "home") as knowledge:
        yield knowledge


@pytest.fixture
def problem(tmp_path: Path) -> str:
    from search_stubs import write_problem

    return str(write_problem(tmp_path))
