"""What a problem moves and computes at the least, found without a device and without memory."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class Traffic:
    """`bytes`: inputs, state and outputs once each; `flops`: of its matrix products and convolutions."""

    bytes: int
    flops: int


def traffic(problem: Path) -> Traffic:
    """Raises whatever the problem raises."""
    spec = importlib.util.spec_from_file_location("gpu_problem", problem)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    counter = FlopCounterMode(display=False)
    # Fused attention is not counted on every backend; the products that it is made of are.
    with FakeTensorMode(), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        inputs = module.get_inputs()
        model = module.Model(*module.get_init_inputs())
        with counter:
            outputs = model(*inputs)
        state = model.state_dict()
        leaves = tree_leaves([inputs, list(state.values()), outputs])
        return Traffic(sum(map(_bytes, leaves)), counter.get_total_flops())


def _bytes(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
