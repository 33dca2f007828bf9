"""The simplest of problems: what is tried here is the harness."""

import torch
from torch import nn

elements = 4 * 1024 * 1024 + 17


class Model(nn.Module):
    def forward(self, x):
        return 2 * x + 1


def get_inputs():
    return [torch.randn(elements)]


def get_init_inputs():
    return []
