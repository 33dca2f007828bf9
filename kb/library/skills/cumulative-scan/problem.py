"""What the evidence of this skill is measured on."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1)


def get_inputs():
    return [torch.randn(4096, 1024)]


def get_init_inputs():
    return []
