"""SwiGLU in bfloat16 on a gate and a value that one projection wrote side by side."""

import torch
import torch.nn.functional as F
from torch import nn

rows = 8192
width = 2560


class Model(nn.Module):
    def forward(self, x):
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value


def get_inputs():
    return [torch.randn(rows, 2 * width, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
