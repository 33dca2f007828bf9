"""GroupNorm followed by SiLU: the unit that repeats before every convolution of a diffusion model's U-Net.

Each group of channels of an image is one reduction over a few tens of thousands of contiguous numbers. A
group fits a core's cache, so the second look at it (to normalise and activate) need not go to memory
again.
"""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 8
CHANNELS = 320
GROUPS = 32
SIDE = 64


class Model(nn.Module):
    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.norm(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs() -> list[int]:
    return [GROUPS, CHANNELS]
