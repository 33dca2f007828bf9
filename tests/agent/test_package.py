from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["agent", "agent.settings", "agent.events", "agent.policies", "prompts"])
def test_importing_the_packages_is_cheap(module):
    heavy = "{'torch', 'sqlmodel', 'chromadb', 'langchain', 'sentence_transformers', 'jinja2', 'numpy'}"
    program = f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["agent", "prompts"])
def test_the_public_names_exist(package):
    module = __import__(package)
    assert all(getattr(module, name) for name in module.__all__)
    with pytest.raises(AttributeError):
        module.nonsense  # noqa: B018
