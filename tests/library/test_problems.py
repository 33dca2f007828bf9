from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROBLEMS = [*sorted((EXAMPLES / "problems").glob("*.py")), EXAMPLES / "candidates" / "row_softmax_problem.py"]
CANDIDATES = sorted(set((EXAMPLES / "candidates").glob("*.py")) - set(PROBLEMS))


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensors(value: Any) -> list[Any]:
    import torch

    return [
        t for t in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(t, torch.Tensor)
    ]


def test_there_are_eight_problems_to_search() -> None:
    assert len(PROBLEMS) - 1 == 8


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda p: p.stem)
def test_problem_satisfies_the_contract(path: Path) -> None:
    import torch

    problem = load(path)
    assert problem.__doc__, "say what the problem models"
    assert issubclass(problem.Model, torch.nn.Module)
    model = problem.Model(*problem.get_init_inputs())
    outputs = []
    with torch.inference_mode():
        for seed in (1, 2):
            torch.manual_seed(seed)
            inputs = problem.get_inputs()
            copies = [t.clone() for t in inputs]
            outputs.append(tensors(model(*inputs)))
            assert all(torch.equal(a, b) for a, b in zip(inputs, copies, strict=True)), "inputs are changed"
    for first, second in zip(*outputs, strict=True):
        assert torch.isfinite(first).all()
        assert first.dtype == torch.float32
        assert first.shape == second.shape
        assert (first - second).norm() > 0.05 * first.norm(), "the output hardly depends on the input"


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda p: p.stem)
def test_every_parameter_matters(path: Path) -> None:
    import torch

    problem = load(path)
    model = problem.Model(*problem.get_init_inputs())
    torch.manual_seed(3)
    inputs = problem.get_inputs()
    with torch.inference_mode():
        before = model(*inputs)
        for name, parameter in model.named_parameters():
            kept = parameter.clone()
            parameter.add_(0.5 * torch.rand_like(parameter))
            assert not torch.allclose(model(*inputs), before, rtol=1e-3, atol=1e-3), name
            parameter.copy_(kept)


@pytest.mark.parametrize("path", CANDIDATES, ids=lambda p: p.stem)
def test_candidate_defines_model_new(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert "ModelNew" in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
