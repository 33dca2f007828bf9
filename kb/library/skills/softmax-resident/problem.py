"""What the evidence of this skill is measured on."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, bias):
        return torch.softmax(x * 0.125 + bias, dim=-1)


def get_inputs():
    return [torch.randn(4096, 1024), torch.randn(1024)]


def get_init_inputs():
    return []
