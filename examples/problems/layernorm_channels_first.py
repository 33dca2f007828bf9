"""LayerNorm over the channels of an image that is stored channels first (the ConvNeXt family).

The reduced dimension is not the contiguous one: neighbouring channels of a pixel lie a whole plane
apart. A kernel that walks channel by channel for one pixel misses the cache at every step; one that
keeps a strip of pixels and walks the channels streams.
"""

import torch
from torch import nn

BATCH = 16
CHANNELS = 96
SIDE = 56


class Model(nn.Module):
    def __init__(self, channels: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(dim=1, keepdim=True)
        centred = x - mean
        variance = centred.pow(2).mean(dim=1, keepdim=True)
        normalised = centred / torch.sqrt(variance + self.eps)
        return self.weight[:, None, None] * normalised + self.bias[:, None, None]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs() -> list[float]:
    return [CHANNELS, 1e-6]
