"""What the evidence of this skill is measured on."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        gate, value = x.chunk(2, dim=-1)
        return F.gelu(gate) * value


def get_inputs():
    return [torch.randn(2048, 8192)]


def get_init_inputs():
    return []
