"""Leaky ReLU, a scale for each channel, and a clamp."""

import torch
import torch.nn.functional as F
from torch import nn

batch = 32
channels = 128
height = 64
width = 128


class Model(nn.Module):
    def __init__(self, channels, slope, low, high):
        super().__init__()
        self.scale = nn.Parameter(0.5 + torch.rand(channels))
        self.slope, self.low, self.high = slope, low, high

    def forward(self, x):
        y = F.leaky_relu(x, self.slope) * self.scale[None, :, None, None]
        return torch.clamp(y, self.low, self.high)


def get_inputs():
    return [torch.randn(batch, channels, height, width)]


def get_init_inputs():
    return [channels, 0.1, -0.2, 1.5]
