"""What the evidence of this skill is measured on."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.log_softmax(x * 0.5, dim=-1)


def get_inputs():
    return [torch.randn(128, 40000)]


def get_init_inputs():
    return []
