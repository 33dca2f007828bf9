"""Two feature blocks side by side, then SiLU."""

import torch
import torch.nn.functional as F
from torch import nn

rows = 16384
left = 768
right = 1280


class Model(nn.Module):
    def forward(self, a, b):
        return F.silu(torch.cat([a, b], dim=1))


def get_inputs():
    return [torch.randn(rows, left), torch.randn(rows, right)]


def get_init_inputs():
    return []
