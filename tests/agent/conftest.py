from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The stubs are a module, because a test also runs them as a program.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))  # servers that tests of several packages talk to

from chat_server import chat_server  # noqa: F401 - a fixture

from kb import KnowledgeBase


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty home; a copy of it is quicker than another migration."""
    from search_stubs import open_kb

    home = tmp_path_factory.mktemp("agent") / "home"
    open_kb(home).close()
    return home


@pytest.fixture
def kb(tmp_path: Path, empty_home: Path) -> Iterator[KnowledgeBase]:
    from search_stubs import open_kb

    shutil.copytree(empty_home, tmp_path / "home")
    with open_kb(tmp_path / "home") as knowledge:
        yield knowledge


@pytest.fixture
def problem(tmp_path: Path) -> str:
    from search_stubs import write_problem

    return str(write_problem(tmp_path))
