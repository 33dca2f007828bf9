"""Linear layer with GELU in float16."""

import torch
import torch.nn.functional as F
from torch import nn

rows = 8192
inner = 4096
columns = 4096


class Model(nn.Module):
    def __init__(self, inner, columns):
        super().__init__()
        self.linear = nn.Linear(inner, columns, dtype=torch.float16)

    def forward(self, x):
        return F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(rows, inner).to(torch.float16)]


def get_init_inputs():
    return [inner, columns]
