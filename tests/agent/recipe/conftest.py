from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from agent.recipe.library import names, record
from kb.records import SkillRecord


@pytest.fixture(autouse=True, scope="session")
def native_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELEVOLVE_NATIVE_CACHE", str(tmp_path_factory.mktemp("native")))
        yield


@pytest.fixture
def all_skills() -> list[SkillRecord]:
    return [record(name) for name in names()]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recipe")
