"""What the evidence of this skill is measured on."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(F.silu(x + self.bias))


def get_inputs():
    return [torch.randn(4096, 1024)]


def get_init_inputs():
    return [1024]
