"""Largest value of each row and where it is."""

import torch
from torch import nn

rows = 16384
columns = 2048


class Model(nn.Module):
    def forward(self, x):
        values, indices = torch.max(x, dim=-1)
        return values, indices


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
