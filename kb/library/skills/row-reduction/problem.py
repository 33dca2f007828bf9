"""What the evidence of this skill is measured on."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return (x.abs() + 1.0).log().sum(dim=-1)


def get_inputs():
    return [torch.randn(4096, 2048)]


def get_init_inputs():
    return []
