"""SwiGLU: one half of a packed projection gates the other (the feed-forward block of Llama-like models).

The two halves arrive side by side in one tensor because one matrix product made both. The gate needs a
sigmoid for each element; everything else is traffic.
"""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 2048
HIDDEN = 4096


class Model(nn.Module):
    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        gate, up = packed.chunk(2, dim=-1)
        return F.silu(gate) * up


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(TOKENS, 2 * HIDDEN)]


def get_init_inputs() -> list[int]:
    return []
