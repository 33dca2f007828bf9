"""Problems with `META["backward"]`: one call is forward and backward, its results include the gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness.worker.values import pack, skeleton, unpack


class NotDifferentiable(Exception):
    """An output that should have a gradient has none."""


def gradient_targets(model: torch.nn.Module) -> list[str]:
    """State-dict names of the parameters that gradients are compared of."""
    return [n for n, p in model.named_parameters() if p.requires_grad and p.is_floating_point()]


def differentiable_outputs(
    forward: Callable[..., Any], arguments: Sequence[Any]
) -> tuple[list[torch.Tensor], list[int], Any]:
    """Outputs, which of them depend differentiably on floating inputs or parameters, and their skeleton."""
    with torch.enable_grad():
        structure, outputs = pack(forward(*_leaves(arguments)[0]))
    return outputs, [i for i, t in enumerate(outputs) if t.requires_grad], skeleton(structure)


class ForwardBackward:
    """Takes forward's arguments and, last, one cotangent for each differentiable output (numbers in
    `outputs`, counted in the order of `structure`).

    Returns `{"result": what forward returned, "inputs": gradients of floating inputs in order, "parameters":
    gradients by order of `parameters`}`; a gradient is zero where nothing depends on the tensor.
    """

    def __init__(
        self,
        forward: Callable[..., Any],
        parameters: Sequence[torch.Tensor],
        outputs: Sequence[int],
        structure: Any,
    ) -> None:
        self.forward, self.outputs, self.structure = forward, outputs, structure
        self.parameters = [p.requires_grad_() for p in parameters]

    def __call__(self, *arguments: Any) -> dict[str, Any]:
        *given, cotangents = arguments
        inputs, leaves = _leaves(given)
        with torch.enable_grad():
            structure, tensors = pack(self.forward(*inputs), self.structure)
            for i in self.outputs:
                if i >= len(tensors) or not tensors[i].requires_grad:
                    raise NotDifferentiable(f"output {i} has no gradient, the reference's has")
            wanted = [*leaves, *self.parameters]
            chosen = [tensors[i] for i in self.outputs]
            found = torch.autograd.grad(chosen, wanted, cotangents, allow_unused=True)
        gradients = [torch.zeros_like(t) if g is None else g for g, t in zip(found, wanted, strict=True)]
        return {
            "result": unpack(structure, [t.detach() for t in tensors]),
            "inputs": gradients[: len(leaves)],
            "parameters": gradients[len(leaves) :],
        }


def _leaves(arguments: Sequence[Any]) -> tuple[list[Any], list[torch.Tensor]]:
    """The arguments with fresh leaves over the same memory for floating tensors, and these leaves."""
    structure, tensors = pack(list(arguments))
    inputs = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
    return list(unpack(structure, inputs)), [t for t in inputs if t.requires_grad]
