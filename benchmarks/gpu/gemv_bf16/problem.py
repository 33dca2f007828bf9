"""Matrix times vector in bfloat16: a linear layer of a single token."""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 1
inner = 8192
columns = 8192


class Model(nn.Module):
    def __init__(self, inner, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, inner, dtype=torch.bfloat16) / inner**0.5)

    def forward(self, x):
        return F.linear(x, self.weight)


def get_inputs():
    return [torch.randn(tokens, inner, dtype=torch.bfloat16)]


def get_init_inputs():
    return [inner, columns]
