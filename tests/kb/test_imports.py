from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "chromadb", "sentence_transformers", "sqlalchemy", "pydantic", "numpy")


@pytest.mark.parametrize("package", ["kb", "ingest"])
def test_importing_the_package_is_light(package: str) -> None:
    code = f"import sys, {package}; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_opening_an_empty_knowledge_base_loads_no_model(tmp_path: object) -> None:
    code = (
        "import sys\nfrom kb import KnowledgeBase, Settings\n"
        f"KnowledgeBase.open(Settings(home={str(tmp_path)!r} + '/h')).close()\n"
        "print(*[m for m in ('torch', 'chromadb', 'sentence_transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
