"""What the evidence of this skill is measured on."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x, residual):
        h = x + residual
        return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def get_inputs():
    return [torch.randn(4096, 1024), torch.randn(4096, 1024)]


def get_init_inputs():
    return [1024]
